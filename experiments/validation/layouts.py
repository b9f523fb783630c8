#!/usr/bin/env python3
"""Predicted against measured iteration times of many layouts, on this machine.

Trains the example model for a few steps under each layout, replays the very programs that ran with
a measured profile, and lays both side by side: with the profile as it is, and corrected by one
run of its own (`diff --refit`), whose times are not among those compared. Layouts take turns, so
that a machine that gets slower or faster in between does so for all of them. Writes a table, and
layouts.json, into --out.

    mpirun -n 2 build/release/hydraulis profile --max-tokens 8192 \\
        --model experiments/example/config.json -o machine.h5
    experiments/validation/layouts.py --profile machine.h5
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training_jobs import CORPUS_DATA, ROOT, call

# Ranks and strategy; more ranks than cores are welcome: the simulator shares the cores among them.
LAYOUTS = [
    (1, "(1,1,1)"),
    (1, "(1,1,1,recompute=full)"),
    (2, "2x(1,1,1)"),
    (2, "(1,2,1)"),
    (2, "(1,1,2)"),
    (2, "(2,1,1)"),
    (2, "(1,1,2,recompute=full)"),
    (4, "4x(1,1,1)"),
    (4, "2x(1,2,1)"),
    (4, "2x(1,1,2)"),
    (4, "(1,2,2)"),
    (4, "(2,1,2)"),
    (4, "(1,2,1)+2x(1,1,1)"),
    (8, "2x(1,2,2)"),
    (8, "(2,2,2)"),
    (8, "(1,2,1)+2x(1,1,2)+2x(1,1,1)"),
]
CALIBRATION = (2, "2x(1,1,1)")  # the run that corrects the profile
WARM_UP = 3


class Layout:
    """One layout with its files."""

    def __init__(self, options, name, ranks, strategy):
        self.options = options
        self.ranks = ranks
        self.strategy = strategy
        self.folder = options.out / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.plan = self.folder / "plan.json"
        self.measured = []  # seconds of each iteration of each round
        self.predicted = []
        self.corrected = []
        self.kinds = {}

    def make_plan(self):
        cluster = json.loads((ROOT / "experiments/example/cluster.json").read_text())
        cluster["devices_per_node"] = self.ranks
        # One thread a rank, as in the profile: fewer ranks than cores leave cores idle.
        cluster["cores_per_node"] = min(self.options.cores, self.ranks)
        path = self.folder / "cluster.json"
        path.write_text(json.dumps(cluster, indent=2))
        call(
            [
                *(self.options.hydraulis, "plan", "--model", self.options.model),
                *("--cluster", path, "--context", "2048", "--strategies", self.strategy),
                *("--tokens-per-batch", str(self.options.tokens), "-o", self.plan),
            ],
            self.folder / "plan.txt",
        )

    def train(self, turn):
        run = self.folder / f"run-{turn}"
        subprocess.run(["rm", "-rf", run], check=True)
        config = {
            "plan": str(self.plan),
            "output": str(run),
            "steps": self.options.steps,
            "seed": 1 + turn if self.folder.name != "calibration" else 99,
            "data": CORPUS_DATA,
            "threads": 1,
            "timeline_steps": self.options.steps,
        }
        path = self.folder / "run.json"
        path.write_text(json.dumps(config, indent=2))
        call(
            ["tests/mpirun.sh", str(self.ranks), self.options.hydraulis, "train", path],
            self.folder / f"train-{turn}.txt",
        )
        return run

    def replay(self, turn, profile):
        """Simulates what ran; returns the timeline."""
        predicted = self.folder / f"predicted-{turn}-{profile.stem}.h5"
        call(
            [
                *(self.options.hydraulis, "replay", self.folder / f"run-{turn}" / "programs"),
                *("--plan", self.plan, "--profile", profile, "--timeline", predicted),
            ],
            self.folder / f"replay-{turn}.txt",
        )
        return predicted

    def diff(self, turn, predicted, *more):
        measured = self.folder / f"run-{turn}" / "timeline.h5"
        command = [self.options.hydraulis, "diff", predicted, measured]
        return json.loads(
            call(
                [*command, "--skip", str(WARM_UP), "--json", *more],
                self.folder / f"diff-{turn}-{predicted.stem}.json",
            )
        )

    def compare(self, turn):
        plain = self.diff(turn, self.replay(turn, self.options.profile))
        corrected = self.diff(turn, self.replay(turn, self.options.corrected))
        for before, after in zip(plain["iterations"], corrected["iterations"], strict=True):
            self.measured.append(before["measured_ms"])
            self.predicted.append(before["predicted_ms"])
            self.corrected.append(after["predicted_ms"])
        for kind, times in corrected["by_kind"].items():
            sums = self.kinds.setdefault(kind, [0.0, 0.0])
            sums[0] += times["predicted_ms"]
            sums[1] += times["measured_ms"]

    def calibrate(self):
        """Writes the corrected profile."""
        self.make_plan()
        if not self.options.compare_only:
            self.train(0)
        predicted = self.replay(0, self.options.profile)
        self.diff(
            0, predicted, "--profile", self.options.profile, "--refit", self.options.corrected
        )

    def result(self):
        def error(predicted):
            ratios = [p / m for p, m in zip(predicted, self.measured, strict=True)]
            return statistics.median(ratios) - 1

        return {
            "ranks": self.ranks,
            "strategy": self.strategy,
            "measured_ms": statistics.median(self.measured),
            "predicted_ms": statistics.median(self.predicted),
            "corrected_ms": statistics.median(self.corrected),
            "error": error(self.predicted),
            "corrected_error": error(self.corrected),
            "iterations": len(self.measured),
            "spread": max(self.measured) / min(self.measured) - 1,
            "by_kind": {
                k: {"predicted_ms": p, "measured_ms": m} for k, (p, m) in self.kinds.items()
            },
        }


def ranking(rows, key):
    """Pairs of layouts on as many ranks whose measured times differ by more than 5 %."""
    right, wrong = 0, []
    for a, b in itertools.combinations(rows, 2):
        if a["ranks"] != b["ranks"]:
            continue
        fast, slow = sorted((a, b), key=lambda row: row["measured_ms"])
        if slow["measured_ms"] <= 1.05 * fast["measured_ms"]:
            continue
        if fast[key] < slow[key]:
            right += 1
        else:
            wrong.append(f"{fast['strategy']} before {slow['strategy']}")
    return right, wrong


def report(rows, cores):
    print(
        f"{'ranks':>5}  {'layout':<28} {'measured ms':>11} {'profile ms':>10} {'error %':>8} "
        f"{'corrected ms':>12} {'error %':>8}"
    )
    for row in rows:
        print(
            f"{row['ranks']:>5}  {row['strategy']:<28} {row['measured_ms']:>11.1f} "
            f"{row['predicted_ms']:>10.1f} {100 * row['error']:>+8.1f} "
            f"{row['corrected_ms']:>12.1f} {100 * row['corrected_error']:>+8.1f}"
        )
    summary = {}
    for name, part in (
        ("up to as many ranks as cores", [r for r in rows if r["ranks"] <= cores]),
        ("more ranks than cores", [r for r in rows if r["ranks"] > cores]),
    ):
        if not part:
            continue
        errors = [
            statistics.mean(abs(row[key]) for row in part) for key in ("error", "corrected_error")
        ]
        summary[name] = {"profile": errors[0], "corrected": errors[1]}
        print(
            f"mean absolute error, {name}: {100 * errors[0]:.1f} %, corrected "
            f"{100 * errors[1]:.1f} %, of {len(part)} layouts"
        )
    order = {}
    for name, key in (("profile", "predicted_ms"), ("corrected", "corrected_ms")):
        right, wrong = ranking(rows, key)
        print(
            f"pairs more than 5 % apart in the right order, {name}: {right} of {right + len(wrong)}"
        )
        for pair in wrong:
            print(f"  measured {pair}, predicted the other way round")
        order[name] = {"right": right, "wrong": wrong}
    return {"mean_abs_error": summary, "order": order}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", type=Path, required=True, help="made by `hydraulis profile`")
    parser.add_argument("--hydraulis", type=Path, default=ROOT / "build/release/hydraulis")
    parser.add_argument("--model", type=Path, default=ROOT / "experiments/example/config.json")
    parser.add_argument("--out", type=Path, default=ROOT / "out/validation")
    parser.add_argument("--ranks", type=int, nargs="*", help="only layouts on so many [1 2 4 8]")
    parser.add_argument("--rounds", type=int, default=2, help="[2]")
    parser.add_argument("--steps", type=int, default=8, help="of each run; three warm up [8]")
    parser.add_argument("--tokens", type=int, default=8192, help="of a batch [8192]")
    parser.add_argument("--compare-only", action="store_true", help="use the runs that are there")
    options = parser.parse_args()
    for name in ("profile", "hydraulis", "model", "out"):
        setattr(options, name, getattr(options, name).resolve())
    options.cores = len(os.sched_getaffinity(0))
    options.corrected = options.out / "corrected.h5"
    print(f"calibration: {CALIBRATION[0]} ranks, {CALIBRATION[1]}", file=sys.stderr)
    Layout(options, "calibration", *CALIBRATION).calibrate()
    layouts = [
        Layout(options, f"{index:02}-{ranks}-ranks", ranks, strategy)
        for index, (ranks, strategy) in enumerate(LAYOUTS)
        if not options.ranks or ranks in options.ranks
    ]
    for layout in layouts:
        layout.make_plan()
    for turn in range(options.rounds):
        for layout in layouts:
            if not options.compare_only:
                print(f"round {turn + 1}: {layout.ranks} ranks, {layout.strategy}", file=sys.stderr)
                layout.train(turn)
            layout.compare(turn)
    rows = [layout.result() for layout in layouts]
    summary = report(rows, options.cores)
    text = json.dumps({"cores": options.cores, "layouts": rows, **summary}, indent=2)
    (options.out / "layouts.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
