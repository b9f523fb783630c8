"""Derives planner/long_table.inc: what a long micro-batch costs a pipeline under 1F1B.

For p stages and v micro-batches of free sizes x (forward a third of each, equal on every stage)
and a weight b, the largest value of x_1 + ... + x_v + b*x_j over every place j and all sizes whose
1F1B makespan is at most 1: a linear program a place. Work and the longest micro-batch of any real
packing within T satisfy work + b*longest <= value*T. Values are rounded up, so the limit stays one.

The last row of each block holds for every larger number of micro-batches: of those only the 32
around place j (or the first or the last 32, when j is among the 16 at an end) keep their
operations. The rest count by their sums alone: what runs before the first of the 32 takes up every
stage before the operations that follow its last backward, and likewise after the last of the 32.

    python3 experiments/derive_long_table.py > planner/long_table.inc          (needs SciPy)
"""

from concurrent.futures import ProcessPoolExecutor

import numpy as np
from derive_bubble_table import FORWARD, instruction_stream
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, lil_matrix

STAGES = (2, 3, 4, 6, 8)
MICRO_BATCHES = range(1, 33)
WEIGHTS = (0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 6, 10, 16, 32)


def precedence(stages: int, count: int, before: bool, after: bool) -> csr_matrix:
    """Rows that must not be positive over the sizes, the sums of what runs before and after them
    (each 0 unless wanted), the makespan and the end of every operation: every operation ends at
    least its duration after the one before it on its stage and after the one its data come from.
    """
    index = {}
    for kind in "FB":
        for stage in range(stages):
            for j in range(count):
                index[kind, stage, j] = count + 3 + len(index)
    sum_before, sum_after, makespan = count, count + 1, count + 2

    def stream(stage: int) -> list[tuple[str, int]]:
        """The stage's operations on the micro-batches kept, in their order."""
        shift = stages if before else 0
        whole = instruction_stream(stage, stages, shift + count + (stages if after else 0))
        return [(kind, j - shift) for kind, j in whole]

    def share(kind: str) -> float:
        return FORWARD if kind == "F" else 1.0 - FORWARD

    rows = []
    for stage in range(stages):
        whole = stream(stage)
        kept = [(kind, j) for kind, j in whole if 0 <= j < count]
        previous = None
        for kind, j in kept:
            end = index[kind, stage, j]
            preceding = [previous]
            if kind == "F" and stage > 0:
                preceding.append(index["F", stage - 1, j])
            if kind == "B" and stage + 1 < stages:
                preceding.append(index["B", stage + 1, j])
            for operation in preceding:
                row = {end: -1.0, j: share(kind)}
                if operation is not None:
                    row[operation] = 1.0
                rows.append(row)
            previous = end
        rows.append({previous: 1.0, makespan: -1.0})
        if before:
            # The first kept operation that all of what runs before precedes.
            last = whole.index(("B", -1))
            first_after = next(o for o in whole[last:] if o in kept)
            row = {index[first_after[0], stage, first_after[1]]: -1.0, sum_before: 1.0}
            for kind, j in kept[: kept.index(first_after) + 1]:
                row[j] = row.get(j, 0.0) + share(kind)
            rows.append(row)
        if after:
            first = whole.index(("F", count))
            last_before = next(o for o in reversed(whole[:first]) if o in kept)
            row = {
                index[last_before[0], stage, last_before[1]]: 1.0,
                sum_after: 1.0,
                makespan: -1.0,
            }
            for kind, j in kept[kept.index(last_before) + 1 :]:
                row[j] = row.get(j, 0.0) + share(kind)
            rows.append(row)
    matrix = lil_matrix((len(rows), count + 3 + len(index)))
    for r, row in enumerate(rows):
        for column, value in row.items():
            matrix[r, column] = value
    return matrix.tocsr()


def solve(
    rows: csr_matrix, count: int, place: int, weight: float, before: bool, after: bool
) -> float:
    """The largest total plus weight times the size at `place` within a makespan of 1."""
    cost = np.zeros(rows.shape[1])
    cost[: count + 2] = -1.0
    cost[place] -= weight
    upper = np.ones(rows.shape[1])
    upper[count] = float(before)
    upper[count + 1] = float(after)
    bounds = np.stack([np.zeros_like(upper), upper], axis=1)
    solution = linprog(cost, A_ub=rows, b_ub=np.zeros(rows.shape[0]), bounds=bounds, method="highs")
    if not solution.success:
        raise RuntimeError(solution.message)
    return -solution.fun


def most_weighted_work(stages: int, count: int) -> list[float]:
    """The largest value for every weight; one more than the last of MICRO_BATCHES stands for any
    number from there."""
    kept = MICRO_BATCHES[-1]
    if count <= kept:
        cases = [(False, False, range(count))]
    else:
        count = kept
        cases = [
            (False, True, range(kept // 2)),
            (True, True, [kept // 2]),
            (True, False, range(kept // 2, kept)),
        ]
    result = [0.0] * len(WEIGHTS)
    for before, after, places in cases:
        rows = precedence(stages, count, before, after)
        for i, weight in enumerate(WEIGHTS):
            for place in places:
                value = solve(rows, count, place, weight, before, after)
                result[i] = max(result[i], value)
    return result


def main() -> None:
    print("// Made by experiments/derive_long_table.py; one block a number of stages, one row a")
    print("// number of micro-batches from 1, the last for all larger ones, one column a weight.")
    counts = [*MICRO_BATCHES, MICRO_BATCHES[-1] + 1]
    cases = [(stages, count) for stages in STAGES for count in counts]
    with ProcessPoolExecutor() as pool:
        rows = pool.map(most_weighted_work, *zip(*cases, strict=True))
        for (_, count), values in zip(cases, rows, strict=True):
            # HiGHS solves to 1e-7; rounding up by more keeps each value an upper limit.
            row = ", ".join(f"{value + 1e-6 * (1 + value):.6f}" for value in values)
            opening = "{" if count == counts[0] else " "
            closing = "}," if count == counts[-1] else ","
            print(f"{opening}{{{row}}}{closing}  // NOLINT", flush=True)


if __name__ == "__main__":
    main()
