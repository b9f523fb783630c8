"""FlexSP's main table with our policies, theirs beside ours (docs/policies.md):
python3 experiments/flexsp/table.py --hydraulis build/release/hydraulis [--iterations 8]
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODELS = {"7B": "llama-7b", "13B": "llama-13b", "30B": "llama-32b"}
TRACES = ("github", "commoncrawl", "wikipedia")
CONTEXTS = {"192K": 196608, "384K": 393216}
# ASPLOS'25: FlexSP over DeepSpeed, over Megatron-LM, in the order of TRACES.
PUBLISHED = {
    ("192K", "7B"): ((1.45, 1.43), (1.50, 1.66), (1.72, 1.98)),
    ("192K", "13B"): ((1.40, 1.38), (1.35, 1.55), (1.59, 1.79)),
    ("192K", "30B"): ((1.44, 1.44), (1.54, 1.58), (1.64, 1.95)),
    ("384K", "7B"): ((1.26, 1.47), (1.42, 1.77), (1.46, 1.77)),
    ("384K", "13B"): ((1.29, 1.63), (1.37, 1.70), (1.43, 1.77)),
    ("384K", "30B"): ((1.22, 1.40), (1.33, 1.60), (1.53, 1.85)),
}


def mean_ms(hydraulis, policy, model, context, trace, iterations):
    """Of a policy that has a layout for the context, else None."""
    command = [hydraulis, "compare", "--policies", policy, "--model", model]
    command += ["--cluster", HERE / "cluster.json", "--trace", trace]
    command += ["--context", context, "--over-context", "drop", "--sequences-per-batch", 512]
    command += ["--iterations", iterations, "--json"]
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False
    )
    if done.returncode == 3:
        return None
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)["policies"][0]["mean_ms"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hydraulis", default="build/release/hydraulis")
    parser.add_argument("--iterations", type=int, default=8)
    options = parser.parse_args()
    print("| longest | model | " + " | ".join(f"{name} | ours" for name in TRACES) + " |")
    print("|---|---|" + "---|---|" * len(TRACES))
    with tempfile.TemporaryDirectory() as folder:
        traces = {}
        for name in TRACES:
            traces[name] = Path(folder) / f"{name}.h5"
            command = [options.hydraulis, "trace", "synth", "--preset", name]
            command += ["--documents", "200000", "-o", str(traces[name])]
            subprocess.run(command, check=True, capture_output=True)
        for (context, model), published in PUBLISHED.items():
            cells = []
            for name, theirs in zip(TRACES, published, strict=True):
                times = [
                    mean_ms(
                        options.hydraulis,
                        policy,
                        MODELS[model],
                        CONTEXTS[context],
                        traces[name],
                        options.iterations,
                    )
                    for policy in ("flexsp", "deepspeed", "megatron")
                ]
                ours = (
                    "–"
                    if None in times
                    else f"{times[1] / times[0]:.2f}, {times[2] / times[0]:.2f}"
                )
                cells.append(f"{theirs[0]:.2f}, {theirs[1]:.2f} | {ours}")
            print(f"| {context} | {model} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
