#!/usr/bin/env bash
# The published experiments in their small versions: they run, and their tables hold what they say.
#   tests/experiments.sh HYDRAULIS
set -euo pipefail
cd "$(dirname "$0")/.."
hydraulis=$1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for part in grid ablation scale; do
  python3 experiments/published/run.py $part --hydraulis "$hydraulis" --out "$out/$part" \
    --iterations 2 --small >"$out/$part.txt"
done
python3 experiments/flexsp/table.py --hydraulis "$hydraulis" --iterations 1 --small >"$out/flexsp.txt"
python3 - "$out" <<'PYTHON'
import json
import sys
from pathlib import Path

out = Path(sys.argv[1])
grid = json.loads((out / "grid/table.json").read_text())
assert len(grid["rows"]) == 4
for row in grid["rows"]:
    systems = row["systems"]
    assert len(systems) == 6
    for name, system in systems.items():
        # A result, or the reason why there is none.
        assert ("mean_ms" in system) == ("infeasible" not in system) or not system["mean_ms"], name
    assert systems["hydraulis"].get("mean_ms") or systems["hydraulis"]["infeasible"]
    assert (out / f"grid/runs/{row['name']}.h5").exists()
ablation = json.loads((out / "ablation/table.json").read_text())
for run in ablation["runs"].values():
    # Each step but the first is no slower than the packing it improves on.
    assert run["hydraulis-static"]["mean_ms"] <= run["static-pack"]["mean_ms"]
scale = json.loads((out / "scale/table.json").read_text())
assert all(row["run"]["planning_ms"] > 0 for row in scale["rows"])
flexsp = (out / "flexsp.txt").read_text().splitlines()
assert len(flexsp) == 3, flexsp
PYTHON
