"""The published experiments, ours beside theirs (docs/experiments.md):
python3 experiments/published/run.py PART --hydraulis build/release/hydraulis

PART is grid (7B, 13B and 32B on 16 to 64 devices, four contexts, two corpora, six systems),
ablation (the case study's steps) or scale (time to plan on 8 to 1,024 devices). Every run's JSON
and HDF5 stay under --out; the table is printed and stored as table.md, its numbers as table.json.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import settings


class Runner:
    """Runs the command and keeps what it says."""

    def __init__(self, options):
        self.command = options.hydraulis
        self.out = Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.iterations = options.iterations
        self.traces = {}

    def run(self, *words):
        """Standard output, or the reason of an infeasible run (exit code 3)."""
        done = subprocess.run(
            [str(word) for word in (self.command, *words)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 3):
            raise SystemExit(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
        return done.stdout if done.returncode == 0 else None, done.stderr.strip()

    def trace(self, name):
        if name not in self.traces:
            path = self.out / "traces" / f"{name}.h5"
            path.parent.mkdir(exist_ok=True)
            self.run("trace", "synth", "--preset", name, "--documents", 200000, "-o", path)
            self.traces[name] = path
        return self.traces[name]

    def compare(self, name, policies, *words):
        """Policy → its part of the JSON; of infeasible ones {"infeasible": why}."""
        folder = self.out / "runs"
        folder.mkdir(exist_ok=True)
        results = folder / f"{name}.h5"
        text, error = self.run(
            *("compare", "--policies", ",".join(policies), *words),
            *("--over-context", "truncate", "--iterations", self.iterations, "--overlap", "on"),
            *("--results", results, "--json"),
        )
        if text is None:
            reason = error.removeprefix("hydraulis: error: ")
            return {policy: {"infeasible": reason} for policy in policies}
        (folder / f"{name}.json").write_text(text)
        return {policy["name"]: policy for policy in json.loads(text)["policies"]}


def speed_up(rows, policy, over):
    """Of `policy` over another, or None where one of them is infeasible."""
    if any(rows[name].get("infeasible") for name in (policy, over)):
        return None
    return rows[over]["mean_ms"] / rows[policy]["mean_ms"]


def cell(rows, policy):
    if rows[policy].get("infeasible"):
        return "–"
    return f"{rows[policy]['mean_ms']:,.0f}"


def number(value):
    return "–" if value is None else f"{value:.2f}"


def grid(runner, small):
    """All systems on all settings."""
    models = {"7B": "llama-7b"} if small else settings.MODELS
    devices = (16,) if small else settings.DEVICES
    contexts = {"16K": 16384, "128K": 131072} if small else settings.CONTEXTS
    policies = settings.POLICIES
    existing = [policy for policy in settings.EXISTING if policy in policies]
    lines = [
        "| model | devices | context | corpus | "
        + " | ".join(f"`{policy}`" for policy in policies)
        + " | over the best existing | over the slowest |",
        "|---|---|---|---|" + "---|" * (len(policies) + 2),
    ]
    rows, reasons, best, worst = [], {}, [], []
    for model, preset in models.items():
        for count in devices:
            for context, tokens in contexts.items():
                for trace in settings.TRACES:
                    name = f"{model}-{count}-{context}-{trace}"
                    asked = (
                        *("--model", preset, "--cluster", f"a800-{count}"),
                        *("--trace", runner.trace(trace), "--context", tokens),
                        *("--tokens-per-batch", settings.TOKENS_PER_DEVICE * count),
                    )
                    found = runner.compare(name, policies, *asked)
                    derived = all(found[policy].get("infeasible") for policy in policies)
                    if derived:
                        found = runner.compare(
                            name, policies, *asked, "--schemes", settings.SCHEMES
                        )
                    gains = [speed_up(found, "hydraulis", system) for system in existing]
                    gains = [gain for gain in gains if gain]
                    least, most = (min(gains), max(gains)) if gains else (None, None)
                    best += [least] if least else []
                    worst += [most] if most else []
                    cells = [cell(found, policy) for policy in policies]
                    lines.append(
                        f"| {model} | {count} | {context}{'*' if derived else ''} | {trace} | "
                        + " | ".join(cells)
                        + f" | {number(least)} | {number(most)} |"
                    )
                    print(lines[-1], file=sys.stderr, flush=True)
                    why = {policy: found[policy].get("infeasible") for policy in policies}
                    for reason in dict.fromkeys(filter(None, why.values())):
                        named = [f"`{policy}`" for policy in policies if why[policy] == reason]
                        reasons[f"{name}, {', '.join(named)}"] = reason
                    rows.append(
                        {"name": name, "derived_schemes": derived, "systems": found}
                        | {"least": least, "most": most}
                    )
    low, high = settings.HEADLINE
    lines.append("")
    if best:
        lines.append(
            f"`hydraulis` over the best of {', '.join(f'`{name}`' for name in existing)}: "
            f"{min(best):.2f} to {max(best):.2f}, median {statistics.median(best):.2f}; over the "
            f"slowest {min(worst):.2f} to {max(worst):.2f}, median {statistics.median(worst):.2f}. "
            f"Published, over existing systems: {low} to {high}."
        )
    if reasons:
        lines += ["", "Infeasible (–):", ""]
        lines += [f"- {name}: {reason}" for name, reason in reasons.items()]
    return lines, {"headline": settings.HEADLINE, "rows": rows, "infeasible": reasons}


def ablation(runner, small):
    """The case study's steps, with the strategies proposed here and with the published ones."""
    policies = [policy for _, policy in settings.ABLATION]
    system = ("--model", "llama-32b", "--cluster", "a800-64", "--context", 32768)
    batch = ("--tokens-per-batch", 200000)
    authors = runner.out / "authors_plan.json"
    runner.run("plan", "--context", 32768, "--strategies", settings.STRATEGIES, "-o", authors)
    runs = {
        "commoncrawl": ("--trace", runner.trace("commoncrawl"), *system, *batch),
        "web-gpt2": ("--trace", "web-gpt2", *system, *batch),
        "wikipedia, their strategies, no communication": (
            *("--trace", "wikipedia", "--plan", authors, *batch),
            "--no-communication",
        ),
    }
    if small:
        runs.pop("web-gpt2")
    found = {
        name: runner.compare(f"ablation-{name.split(',')[0]}", policies, *words)
        for name, words in runs.items()
    }
    lines = [
        "| step | policy | " + " | ".join(f"{name}, ms | ×" for name in runs) + " | theirs, × |",
        "|---|---|" + "---|---|" * len(runs) + "---|",
    ]
    for step, policy in settings.ABLATION:
        cells = []
        for name in runs:
            cells += [cell(found[name], policy)]
            cells += [number(speed_up(found[name], policy, "static-pack"))]
        theirs = number(settings.AUTHORS_PLANNER.get(policy))
        lines.append(f"| {step} | `{policy}` | " + " | ".join(cells) + f" | {theirs} |")
    return lines, {"runs": found, "authors_planner": settings.AUTHORS_PLANNER}


def scale(runner, small):
    """Time to propose strategies and to plan one iteration, as devices and tokens grow."""
    counts = (8, 64) if small else settings.SCALES
    lines = [
        "| devices | tokens a batch | proposal, s | planning an iteration, ms | at most, ms | "
        "iteration, ms |",
        "|---|---|---|---|---|---|",
    ]
    rows = []
    for count in counts:
        tokens = settings.TOKENS_PER_DEVICE * count
        # Below 32 devices 32B has no layout that holds the context.
        model = "llama-7b" if count < 32 else "llama-32b"
        batch = ("--trace", runner.trace("commoncrawl"), "--tokens-per-batch", tokens)
        plan = runner.out / f"plan-{count}.json"
        text, error = runner.run(
            *("plan", "--model", model, "--cluster", f"a800-{count}", "--context", 32768),
            *(*batch, "--over-context", "truncate", "-o", plan, "--json"),
        )
        if text is None:
            raise SystemExit(error)
        found = runner.compare(f"scale-{count}", ("hydraulis",), "--plan", plan, *batch)
        run = found["hydraulis"]
        seconds = json.loads(text)["proposal_seconds"]
        rows.append({"devices": count, "tokens": tokens, "proposal_seconds": seconds, "run": run})
        lines.append(
            f"| {count} | {tokens:,} | {seconds:.2f} | {run['planning_ms']:.1f} | "
            f"{run['most_planning_ms']:.1f} | {run['mean_ms']:,.0f} |"
        )
        print(lines[-1], file=sys.stderr, flush=True)
    dispatch = " to ".join(map(str, settings.AUTHORS_DISPATCH_SECONDS))
    lines += [
        "",
        f"The authors' planner on 1,024 devices, on two cores too: {dispatch} s for an iteration's "
        f"dispatch, {settings.AUTHORS_PROPOSAL_SECONDS} s for the proposal.",
    ]
    return lines, {"rows": rows}


PARTS = {"grid": grid, "ablation": ablation, "scale": scale}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--hydraulis", default="build/release/hydraulis")
    parser.add_argument("--out", default="out/published")
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--small", action="store_true", help="a few settings, for a look or a test")
    options = parser.parse_args()
    runner = Runner(options)
    lines, numbers = PARTS[options.part](runner, options.small)
    (runner.out / "table.md").write_text("\n".join(lines) + "\n")
    (runner.out / "table.json").write_text(json.dumps(numbers, indent=1) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
