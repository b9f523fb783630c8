#!/usr/bin/env python3
"""A tuned plan against static training, for real, on two ranks with a memory limit.

The limit keeps the longest sequences of the shipped corpus out of one rank's memory, so that a
static layout must pay on every batch for what only some of them need. The same batches are trained
under each system in turn, several rounds; reported is the ratio of times of the same step, with a
confidence interval, beside the ratio that the profile predicts.

    experiments/tune/training.py --profile machine.h5
"""

import argparse
import csv
import json
import random
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training_jobs import CORPUS, CORPUS_DATA, ROOT, call

SYSTEMS = ["static-pack", "hydraulis-static", "hydraulis"]
RANKS = 2
WARM_UP = 2


def prepare(options):
    """The corpus' lengths, the cluster with its limit, the tuned plan."""
    out = options.out
    cluster = json.loads((ROOT / "experiments/example/cluster.json").read_text())
    cluster["device"]["memory_gib"] = options.memory_gib
    cluster["device"]["reserved_gib"] = options.reserved_gib
    (out / "cluster.json").write_text(json.dumps(cluster, indent=2))
    call(
        [
            *(options.hydraulis, "trace", "import", CORPUS / "corpus.jsonl.gz"),
            *("--tokenizer", f"bpe:{CORPUS}", "-o", out / "corpus.h5"),
        ],
        out / "corpus.txt",
    )
    call(
        [
            *(options.hydraulis, "tune", "--model", options.model),
            *("--cluster", out / "cluster.json", "--profile", options.profile),
            *("--trace", out / "corpus.h5", "--context", str(options.context)),
            *("--over-context", "truncate", "--tokens-per-batch", str(options.tokens)),
            *("-o", out / "plan.json"),
        ],
        out / "tune.txt",
    )


def train(options, system, turn):
    """Trains a round under one system; returns its steps as (measured, predicted, tokens)."""
    run = options.out / f"{system}-{turn}"
    subprocess.run(["rm", "-rf", run], check=True)
    config = {
        "plan": str(options.out / "plan.json"),
        "output": str(run),
        "policy": system,
        "steps": options.steps,
        "seed": 1 + turn,
        "memory_limit_gib": options.memory_gib,
        "data": CORPUS_DATA,
    }
    path = options.out / "run.json"
    path.write_text(json.dumps(config, indent=2))
    call(
        ["tests/mpirun.sh", str(RANKS), options.hydraulis, "train", path],
        options.out / f"{system}-{turn}.txt",
    )
    with (run / "log.csv").open() as log:
        rows = list(csv.DictReader(log))[WARM_UP:]
    return [(float(r["seconds"]), float(r["predicted_seconds"]), int(r["tokens"])) for r in rows], [
        row["strategy"] for row in rows
    ]


def interval(values, draws=2000):
    """Median with a bootstrap 95 % confidence interval."""
    source = random.Random(1)
    medians = sorted(statistics.median(source.choices(values, k=len(values))) for _ in range(draws))
    return statistics.median(values), medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", type=Path, required=True, help="made by `hydraulis profile`")
    parser.add_argument("--hydraulis", type=Path, default=ROOT / "build/release/hydraulis")
    parser.add_argument("--model", type=Path, default=ROOT / "experiments/example/config.json")
    parser.add_argument("--out", type=Path, default=ROOT / "out/tuned-training")
    parser.add_argument("--memory-gib", type=float, default=0.7, help="of a rank [0.7]")
    parser.add_argument("--reserved-gib", type=float, default=0.05, help="of that, unused [0.05]")
    parser.add_argument("--context", type=int, default=8192, help="tokens [8192]")
    parser.add_argument("--tokens", type=int, default=16384, help="of a batch [16384]")
    parser.add_argument("--steps", type=int, default=12, help="of a round; two warm up [12]")
    parser.add_argument("--rounds", type=int, default=3, help="[3]")
    options = parser.parse_args()
    for name in ("profile", "hydraulis", "model", "out"):
        setattr(options, name, getattr(options, name).resolve())
    options.out.mkdir(parents=True, exist_ok=True)
    prepare(options)
    steps = {system: [] for system in SYSTEMS}
    strategies = {system: {} for system in SYSTEMS}
    for turn in range(options.rounds):
        for system in SYSTEMS:
            print(f"round {turn + 1}: {system}", file=sys.stderr)
            done, chosen = train(options, system, turn)
            steps[system] += done
            for strategy in chosen:
                strategies[system][strategy] = strategies[system].get(strategy, 0) + 1

    result = {}
    print(f"{'system':<18} {'tokens/s':>9} {'predicted':>10}  strategies (steps)")
    for system in SYSTEMS:
        measured = sum(s[2] for s in steps[system]) / sum(s[0] for s in steps[system])
        predicted = sum(s[2] for s in steps[system]) / sum(s[1] for s in steps[system])
        names = ", ".join(f"{name} ({n})" for name, n in strategies[system].items())
        print(f"{system:<18} {measured:>9.0f} {predicted:>10.0f}  {names}")
        result[system] = {
            "tokens_per_second": measured,
            "predicted_tokens_per_second": predicted,
            "strategies": strategies[system],
        }
    for system in SYSTEMS[:-1]:
        pairs = list(zip(steps[system], steps["hydraulis"], strict=True))
        gain, low, high = interval([a[0] / b[0] for a, b in pairs])
        predicted = sum(a[1] for a, _ in pairs) / sum(b[1] for _, b in pairs)
        total = sum(a[0] for a, _ in pairs) / sum(b[0] for _, b in pairs)
        print(
            f"hydraulis over {system}: {total:.3f} in all; median of {len(pairs)} steps {gain:.3f} "
            f"(95 %: {low:.3f} to {high:.3f}); predicted {predicted:.3f}"
        )
        result[f"over {system}"] = {
            "gain": total,
            "median": gain,
            "low": low,
            "high": high,
            "predicted": predicted,
        }
    (options.out / "training.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
