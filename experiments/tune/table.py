"""Prints the table of experiments/tune/README.md from what bench_planner_effort wrote:
bench_planner_effort --benchmark_format=csv | python3 experiments/tune/table.py
"""

import csv
import sys


def main() -> None:
    lines = sys.stdin.read().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("name,"))
    rows: dict[str, dict[str, dict[str, str]]] = {}
    for row in csv.DictReader(lines[start:]):
        kind, name = row["name"].removesuffix("/iterations:1").split("/", 1)
        rows.setdefault(name, {})[kind] = row
    print(
        "| constant | published set: above bound % | ms a batch | slowest ms "
        "| proposed set: above bound % | ms a batch | slowest ms |"
    )
    print("|---|" + "---:|" * 6)
    for name, kinds in rows.items():
        cells = []
        for kind in ("published", "proposed"):
            row = kinds[kind]
            cells.append(f"{float(row['above_bound_percent']):.3f}")
            cells.append(f"{float(row['ms_a_batch']):.1f}")
            cells.append(f"{float(row['slowest_ms']):.0f}")
        print(f"| `{name}` | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
