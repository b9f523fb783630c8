"""Derives planner/several_table.inc: what several long micro-batches cost a pipeline under 1F1B.

As derive_long_table.py, with the weight b on 2 and on 3 micro-batches at once, for up to 16
micro-batches on 2 to 4 stages: the largest value of x_1 + ... + x_v + b*(x_i + x_j + ...) over all
sets of places and all sizes whose 1F1B makespan is at most 1. A set is skipped when the mean over
its places of the value with the whole weight on that place alone, which is at least the set's own
value, is no better.

    python3 experiments/derive_several_table.py > planner/several_table.inc          (needs SciPy)
"""

from concurrent.futures import ProcessPoolExecutor
from itertools import combinations

import numpy as np
from derive_long_table import WEIGHTS, precedence
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

SETS = (2, 3)
STAGES = (2, 3, 4)
MICRO_BATCHES = range(1, 17)


def solve(rows: csr_matrix, count: int, places: tuple[int, ...], weight: float) -> float:
    """The largest total plus weight times the sizes at the places within a makespan of 1."""
    cost = np.zeros(rows.shape[1])
    cost[:count] = -1.0
    for place in places:
        cost[place] -= weight
    bounds = [(0, 1)] * count + [(0, 0)] * 2 + [(0, 1)] * (rows.shape[1] - count - 2)
    solution = linprog(cost, A_ub=rows, b_ub=np.zeros(rows.shape[0]), bounds=bounds, method="highs")
    if not solution.success:
        raise RuntimeError(solution.message)
    return -solution.fun


def most_weighted_work(size: int, stages: int, count: int) -> list[float]:
    """The largest value for every weight over the sets of `size` places."""
    rows = precedence(stages, count, False, False)
    size = min(size, count)
    result = []
    for weight in WEIGHTS:
        alone = [solve(rows, count, (place,), size * weight) for place in range(count)]
        limits = {s: sum(alone[j] for j in s) / size for s in combinations(range(count), size)}
        best = 0.0
        for places in sorted(limits, key=lambda s: -limits[s]):
            if limits[places] <= best:
                break
            best = max(best, solve(rows, count, places, weight))
        result.append(best)
    return result


def main() -> None:
    print(
        "// Made by experiments/derive_several_table.py; one block a size of the set, in it one a"
    )
    print("// number of stages, one row a number of micro-batches from 1, one column a weight.")
    cases = [(k, p, v) for k in SETS for p in STAGES for v in MICRO_BATCHES]
    with ProcessPoolExecutor() as pool:
        rows = pool.map(most_weighted_work, *zip(*cases, strict=True))
        for (_, p, v), values in zip(cases, rows, strict=True):
            row = ", ".join(f"{value + 1e-6 * (1 + value):.6f}" for value in values)
            first, last = v == MICRO_BATCHES[0], v == MICRO_BATCHES[-1]
            opening = ("{" if first and p == STAGES[0] else " ") + ("{" if first else " ")
            closing = ("}" if last else "") + ("}" if last and p == STAGES[-1] else "")
            print(f"{opening}{{{row}}}{closing},  // NOLINT", flush=True)


if __name__ == "__main__":
    main()
