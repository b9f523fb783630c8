#!/usr/bin/env python3
"""Makes the files that the notebooks read, with the command alone: traces, plans, one assigned
batch, a short training run replayed and compared, comparisons, and a sweep. The profile takes
minutes on a quiet machine to measure, so one lies in data/; --profile takes another.

    notebooks/make_inputs.py --hydraulis build/release/hydraulis --out out/notebooks
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import h5py

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "experiments/example"
CORPUS = ROOT / "experiments/data/corpus"

CONTEXT = 32768
TOKENS = 200_000
CASE_STUDY = ["--model", "llama-32b", "--cluster", "a800-64"]
BATCHES = ["--context", CONTEXT, "--tokens-per-batch", TOKENS, "--over-context", "truncate"]
# The strategies published for the case study, arXiv:2412.07894.
PUBLISHED = (
    "4x(1,16,1); (1,16,1)+2x(1,8,3); (1,16,1)+6x(1,8,1); (1,16,1)+12x(1,4,1); "
    "(1,8,3)+10x(1,4,1); (1,8,1)+14x(1,4,1); 8x(1,4,2)"
)
STEPS = 5


class Maker:
    """Runs the command in a folder."""

    def __init__(self, command, out, measured):
        self.command = command
        self.out = out
        self.measured = measured

    def run(self, *arguments, ranks=0, to=None):
        words = [self.command, *arguments]
        if ranks:
            words = [ROOT / "tests/mpirun.sh", ranks, *words]
        words = [str(word) for word in words]
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(words)}: ended with {done.returncode}\n{done.stderr}")
        if to:
            (self.out / to).write_text(done.stdout)

    def profile(self):
        """The profile that predictions use, as it is and as the command shows it."""
        profile = self.out / "machine.h5"
        shutil.copyfile(self.measured, profile)
        self.run("profile", "show", profile, "--json", to="profile_show.json")

    def traces(self):
        self.run(
            *("trace", "import", CORPUS / "corpus.jsonl.gz", "--tokenizer", f"bpe:{CORPUS}"),
            *("-o", self.out / "corpus.h5"),
        )
        self.run(
            *("trace", "synth", "--preset", "commoncrawl", "--documents", 20000),
            *("-o", self.out / "commoncrawl.h5"),
        )
        for name in ("corpus", "commoncrawl"):
            self.run("trace", "show", self.out / f"{name}.h5", "--json", to=f"{name}.json")

    def plan(self):
        """The case study's plan and one batch of it, the first that fills the budget."""
        trace = self.out / "commoncrawl.h5"
        plan = self.out / "plan.json"
        self.run("plan", *CASE_STUDY, *BATCHES, "--trace", trace, "-o", plan)
        with h5py.File(trace) as file:
            lengths = file["lengths"][:2000]
        batch, total = [], 0
        for length in (min(int(value), CONTEXT) for value in lengths):
            if total + length > TOKENS:
                break
            batch.append(length)
            total += length
        text = "".join(f"{length}\n" for length in batch)
        (self.out / "batch.txt").write_text(text)
        self.run(
            *("assign", "--plan", plan, "--lengths", self.out / "batch.txt", "--json"),
            to="assign.json",
        )

    def training(self):
        """A few steps on two ranks, replayed with the profile."""
        folder = self.out / "train"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        plan = folder / "plan.json"
        self.run(
            *("plan", "--model", EXAMPLE / "config.json", "--cluster", EXAMPLE / "cluster.json"),
            *("--context", 1024, "--tokens-per-batch", 2048, "--strategies", "2x(1,1,1); (1,1,2)"),
            *("-o", plan),
        )
        data = {
            "path": str(CORPUS / "corpus.jsonl.gz"),
            "tokenizer": f"bpe:{CORPUS}",
            "end_token": 0,
        }
        config = {
            "plan": str(plan),
            "output": str(folder / "run"),
            "steps": STEPS,
            "seed": 1,
            "threads": 1,
            "data": {"sets": [data], "over_context": "truncate"},
            "timeline_steps": STEPS,
        }
        run = folder / "run.json"
        run.write_text(json.dumps(config, indent=2))
        self.run("train", run, ranks=2)
        predicted = folder / "predicted.h5"
        self.run(
            *("replay", folder / "run/programs", "--plan", plan),
            *("--profile", self.out / "machine.h5", "--timeline", predicted),
        )
        self.run(
            *("diff", predicted, folder / "run/timeline.h5", "--skip", 1, "--json"),
            to="train/diff.json",
        )

    def published(self):
        """The case study: with the published strategies, and as it is planned here."""
        plan = self.out / "published_plan.json"
        self.run("plan", *CASE_STUDY, *BATCHES, "--strategies", PUBLISHED, "-o", plan)
        policies = ["--policies", "static-pack,hydraulis-static,hydraulis", "--iterations", 30]
        self.run(
            *("compare", *policies, "--plan", plan, "--trace", "wikipedia"),
            *("--over-context", "truncate", "--no-communication", "--json"),
            to="published_compare.json",
        )
        self.run(
            *("compare", *policies, "--plan", self.out / "plan.json"),
            *("--trace", self.out / "commoncrawl.h5", "--over-context", "truncate", "--json"),
            to="case_study_compare.json",
        )

    def capacity(self):
        """Devices and network speeds, under two systems."""
        file = self.out / "capacity.json"
        file.write_text((ROOT / "experiments/sweeps/capacity.json").read_text())
        self.run("sweep", file, "-o", self.out / "capacity.h5")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hydraulis", type=Path, default=ROOT / "build/release/hydraulis")
    parser.add_argument("--out", type=Path, default=ROOT / "out/notebooks")
    parser.add_argument("--profile", type=Path, default=ROOT / "notebooks/data/machine.h5")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    maker = Maker(options.hydraulis.resolve(), options.out.resolve(), options.profile.resolve())
    steps = (maker.profile, maker.traces, maker.plan, maker.training, maker.published)
    for step in (*steps, maker.capacity):
        print(f"making inputs: {step.__name__}", flush=True)
        step()


if __name__ == "__main__":
    main()
