"""Derives planner/bubble_table.inc: the least possible 1F1B makespan for a unit of work.

For p stages and v micro-batches whose sizes may be chosen freely (sum 1, forward a third of each,
equal on every stage), the makespan of 1F1B is a linear program in sizes and end times. Its optimum
bounds every real packing from below. Values are rounded down, so the bound stays a bound.

    python3 experiments/derive_bubble_table.py > planner/bubble_table.inc      (needs SciPy)
"""

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import lil_matrix

STAGES = range(2, 17)
MICRO_BATCHES = range(1, 33)
FORWARD = 1.0 / 3.0


def instruction_stream(stage: int, stages: int, count: int) -> list[tuple[str, int]]:
    """The 1F1B order of one stage: warm-up forwards, then one forward and one backward in turn."""
    warm_up = min(stages - 1 - stage, count)
    stream = [("F", j) for j in range(warm_up)]
    forward = warm_up
    for backward in range(count):
        if forward < count:
            stream.append(("F", forward))
            forward += 1
        stream.append(("B", backward))
    return stream


def least_makespan(stages: int, count: int) -> float:
    """Optimum of the linear program over micro-batch sizes and end times."""
    index = {}
    for kind in "FB":
        for stage in range(stages):
            for j in range(count):
                index[kind, stage, j] = count + len(index)
    makespan = count + len(index)
    rows = []

    def ends_after(end: int, size: int, share: float, before: int | None) -> None:
        row = {end: -1.0, size: share}
        if before is not None:
            row[before] = 1.0
        rows.append(row)

    for stage in range(stages):
        previous = None
        for kind, j in instruction_stream(stage, stages, count):
            end = index[kind, stage, j]
            share = FORWARD if kind == "F" else 1.0 - FORWARD
            ends_after(end, j, share, previous)
            if kind == "F" and stage > 0:
                ends_after(end, j, share, index["F", stage - 1, j])
            if kind == "B" and stage + 1 < stages:
                ends_after(end, j, share, index["B", stage + 1, j])
            previous = end
        rows.append({previous: 1.0, makespan: -1.0})

    inequalities = lil_matrix((len(rows), makespan + 1))
    for r, row in enumerate(rows):
        for column, value in row.items():
            inequalities[r, column] = value
    total = lil_matrix((1, makespan + 1))
    total[0, :count] = 1.0
    cost = np.zeros(makespan + 1)
    cost[makespan] = 1.0
    result = linprog(
        cost,
        A_ub=inequalities.tocsr(),
        b_ub=np.zeros(len(rows)),
        A_eq=total.tocsr(),
        b_eq=[1.0],
        bounds=(0, None),
        method="highs",
    )
    if not result.success:
        raise RuntimeError(result.message)
    return result.fun


def main() -> None:
    print("// Made by experiments/derive_bubble_table.py; one row a number of stages from 2,")
    print("// one column a number of micro-batches from 1.")
    for stages in STAGES:
        values = [least_makespan(stages, count) for count in MICRO_BATCHES]
        # HiGHS solves to 1e-7; rounding down by more keeps each value a lower bound.
        print("{" + ", ".join(f"{value - 1e-6:.6f}" for value in values) + "},  // NOLINT")


if __name__ == "__main__":
    main()
