#!/usr/bin/env python3
"""Every policy that trains, for real, on the same batches: measured beside simulated, losses equal.

The memory of a rank is limited so that the longest sequences fit no single one. Each policy trains
the same steps, in turns; the very programs that ran are simulated with the machine's profile, and
both times of every step are laid side by side. A policy changes where sequences are trained, never
what is computed, so the losses of a step must agree up to rounding.

    experiments/training_policies.py --profile machine.h5
    experiments/training_policies.py --profile machine.h5 --small     five policies, two steps
"""

import argparse
import csv
import itertools
import json
import os
import shutil
import statistics
import sys
from pathlib import Path

from training_jobs import CORPUS, CORPUS_DATA, ROOT, call

POLICIES = [
    "static-pack",
    "static-pad",
    "megatron",
    "dynapipe",
    "hotspa",
    "dynamic-cp",
    "hydraulis-static",
    "hydraulis",
]
# GiB of a rank, by ranks: little enough that policies must differ for the long sequences.
MEMORY = {2: 0.2, 4: 0.13}
LOSS_TOLERANCE = 1e-4  # relative, in single precision


class Setting:
    """One number of ranks: its plan, and the runs of all policies."""

    def __init__(self, options, ranks):
        self.options = options
        self.ranks = ranks
        self.folder = options.out / f"{ranks}-ranks"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.plan = self.folder / "plan.json"
        self.steps = {policy: [] for policy in options.policies}
        self.strategies = {policy: [] for policy in options.policies}

    def system(self):
        model = ["--model", ROOT / "experiments/example/config.json"]
        cluster = ["--cluster", self.folder / "cluster.json"]
        return [*model, *cluster, "--profile", self.options.profile]

    def make_plan(self):
        cluster = json.loads((ROOT / "experiments/example/cluster.json").read_text())
        cluster["devices_per_node"] = self.ranks
        cluster["cores_per_node"] = min(self.options.cores, self.ranks)
        cluster["device"] |= {
            "memory_gib": MEMORY[self.ranks],
            "reserved_gib": MEMORY[self.ranks] / 16,
        }
        (self.folder / "cluster.json").write_text(json.dumps(cluster, indent=2))
        context = ("--context", str(self.options.context), "--over-context", "truncate")
        batch = ("--tokens-per-batch", str(self.options.tokens))
        trace = ("--trace", self.options.out / "corpus.h5")
        command = [self.options.hydraulis, "plan", *self.system(), *trace, *context, *batch]
        call([*command, "-o", self.plan], self.folder / "plan.txt")

    def train(self, policy, turn):
        """Trains a round and simulates the programs that it executed."""
        run = self.folder / f"{policy}-{turn}"
        shutil.rmtree(run, ignore_errors=True)
        config = {
            "plan": str(self.plan),
            "output": str(run),
            "policy": policy,
            "steps": self.options.steps,
            "seed": 1 + turn,
            "threads": 1,
            "data": CORPUS_DATA,
            "timeline_steps": self.options.steps,
        }
        file = self.folder / f"{policy}-{turn}.json"
        file.write_text(json.dumps(config, indent=2))
        command = ["tests/mpirun.sh", str(self.ranks), self.options.hydraulis, "train", file]
        call(command, self.folder / f"{policy}-{turn}.txt")
        predicted = self.folder / f"{policy}-{turn}.h5"
        replay = [self.options.hydraulis, "replay", run / "programs", "--plan", self.plan]
        call(
            [*replay, "--timeline", predicted],
            self.folder / f"{policy}-{turn}-replay.txt",
        )
        diff = [self.options.hydraulis, "diff", predicted, run / "timeline.h5", "--json"]
        times = json.loads(call(diff, self.folder / f"{policy}-{turn}-diff.json"))
        with (run / "log.csv").open() as log:
            rows = list(csv.DictReader(log))
        steps = zip(times["iterations"], rows, strict=True)
        for both, row in itertools.islice(steps, self.options.warm_up, None):
            self.steps[policy].append(
                (both["measured_ms"], both["predicted_ms"], float(row["loss"]))
            )
            self.strategies[policy].append(row["strategy"])

    def result(self, policy):
        steps = self.steps[policy]
        reference = self.steps[self.options.policies[0]]
        strategies = self.strategies[policy]
        measured = statistics.mean(step[0] for step in steps)
        predicted = statistics.mean(step[1] for step in steps)
        return {
            "ranks": self.ranks,
            "policy": policy,
            "strategies": {name: strategies.count(name) for name in dict.fromkeys(strategies)},
            "phases": statistics.mean(name.count(" > ") + 1 for name in strategies),
            "measured_ms": measured,
            "predicted_ms": predicted,
            "ratio": predicted / measured,
            "most_loss_difference": max(
                abs(own[2] / first[2] - 1) for own, first in zip(steps, reference, strict=True)
            ),
            "steps": [step[:2] for step in steps],
        }


def order(rows):
    """Pairs of policies on as many ranks, measured more than 5 % apart: right, and wrong ones."""
    right, wrong = 0, []
    for pair in itertools.combinations(rows, 2):
        fast, slow = sorted(pair, key=lambda row: row["measured_ms"])
        if fast["ranks"] != slow["ranks"] or slow["measured_ms"] <= 1.05 * fast["measured_ms"]:
            continue
        if fast["predicted_ms"] < slow["predicted_ms"]:
            right += 1
        else:
            wrong.append([fast["ranks"], fast["policy"], slow["policy"]])
    return right, wrong


def report(rows):
    print("| ranks | policy | phases | measured, ms | simulated, ms | ratio | loss differs by |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['ranks']} | `{row['policy']}` | {row['phases']:.1f} "
            f"| {row['measured_ms']:.0f} | {row['predicted_ms']:.0f} | {row['ratio']:.2f} "
            f"| {row['most_loss_difference']:.0e} |"
        )
    right, wrong = order(rows)
    print(f"\npairs more than 5 % apart in the right order: {right} of {right + len(wrong)}")
    for ranks, fast, slow in wrong:
        print(f"  {ranks} ranks: measured {fast} before {slow}, simulated the other way round")
    return {"right": right, "wrong": wrong}


def check(rows):
    """What must hold on any machine: equal losses, and phases where a policy has them."""
    problems = [
        f"{row['policy']} on {row['ranks']} ranks: losses differ by {row['most_loss_difference']}"
        for row in rows
        if not row["most_loss_difference"] <= LOSS_TOLERANCE
    ]
    for policy in ("hotspa", "dynamic-cp"):
        own = [row for row in rows if row["policy"] == policy]
        if own and max(row["phases"] for row in own) <= 1:
            problems.append(f"{policy}: no iteration had more than one phase")
    return problems


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", type=Path, required=True, help="made by `hydraulis profile`")
    parser.add_argument("--hydraulis", type=Path, default=ROOT / "build/release/hydraulis")
    parser.add_argument("--out", type=Path, default=ROOT / "out/policies-trained")
    parser.add_argument("--policies", nargs="*", default=POLICIES)
    parser.add_argument("--ranks", type=int, nargs="*", choices=list(MEMORY), default=[2, 4])
    parser.add_argument("--context", type=int, default=4096, help="tokens [4096]")
    parser.add_argument("--tokens", type=int, default=8192, help="of a batch [8192]")
    parser.add_argument("--steps", type=int, default=8, help="of a round [8]")
    parser.add_argument("--warm-up", type=int, default=2, help="of them left out [2]")
    parser.add_argument("--rounds", type=int, default=1, help="[1]")
    parser.add_argument("--small", action="store_true", help="five policies, 2 ranks, two steps")
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.small:
        options.ranks, options.steps, options.warm_up, options.rounds = [2], 2, 0, 1
        options.policies = ["static-pack", "dynapipe", "hotspa", "dynamic-cp", "hydraulis"]
    for name in ("profile", "hydraulis"):
        setattr(options, name, getattr(options, name).resolve())
    options.cores = len(os.sched_getaffinity(0))
    return options


def main():
    options = parse()
    corpus = [CORPUS / "corpus.jsonl.gz", "--tokenizer", f"bpe:{CORPUS}"]
    call(
        [options.hydraulis, "trace", "import", *corpus, "-o", options.out / "corpus.h5"],
        options.out / "corpus.txt",
    )
    settings = [Setting(options, ranks) for ranks in options.ranks]
    for setting in settings:
        setting.make_plan()
        for turn, policy in itertools.product(range(options.rounds), options.policies):
            print(f"{setting.ranks} ranks, round {turn + 1}: {policy}", file=sys.stderr)
            setting.train(policy, turn)
    rows = [setting.result(policy) for setting in settings for policy in options.policies]
    result = {"cores": options.cores, "policies": rows, "order": report(rows)}
    (options.out / "policies.json").write_text(json.dumps(result, indent=2) + "\n")
    problems = check(rows)
    for problem in problems:
        print(f"training_policies: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
