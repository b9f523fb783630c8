"""Causal attention of 2048-token packs, forward and backward: PyTorch's CPU build against ours.

The times are taken in turn in one run on the same threads: PyTorch, then one run of
`bench_attention`, several rounds; the best of each counts, since other work on the machine only
makes a run longer. PyTorch gets each pack as a batch of equal sequences, the best case for its
scaled_dot_product_attention: it has no kernel for sequences of unequal length on the CPU.

    python3 -m venv venv && venv/bin/pip install torch
    OMP_NUM_THREADS=2 venv/bin/python experiments/pytorch/attention_speed.py \
        build/release/experiments/bench_attention
"""

import argparse
import json
import os
import subprocess
import time

import torch

HEADS = 8
HEAD_DIM = 64
PACKS = {0: (1, 2048), 1: (4, 512), 2: (16, 128), 3: (128, 16)}


def pytorch_times(sequences, length, repeats):
    """Best seconds of forward and of backward."""
    shape = (sequences, HEADS, length, HEAD_DIM)
    q, k, v = (torch.rand(shape, requires_grad=True) for _ in range(3))
    dout = torch.rand(shape)
    forward = backward = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        middle = time.perf_counter()
        out.backward(dout)
        end = time.perf_counter()
        forward = min(forward, middle - begin)
        backward = min(backward, end - middle)
        q.grad = k.grad = v.grad = None
    return forward, backward


def own_times(program, threads):
    """Best seconds by (pack, "forward" or "backward")."""
    packs = "|".join(str(pack) for pack in PACKS)
    pattern = f"pack:({packs})/threads:{threads}/kv_heads:{HEADS}/"
    output = subprocess.run(
        [program, f"--benchmark_filter={pattern}", "--benchmark_format=json"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    times = {}
    for run in json.loads(output)["benchmarks"]:
        direction = run["name"].split("/")[0].removeprefix("attention_")
        pack = int(run["name"].split("pack:")[1].split("/")[0])
        times[pack, direction] = run["best_ms"] * 1e-3
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="bench_attention")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=10, help="PyTorch calls a round")
    arguments = parser.parse_args()
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    torch.set_num_threads(threads)

    own, theirs = {}, {}
    for _ in range(arguments.rounds):
        for pack, (sequences, length) in PACKS.items():
            times = pytorch_times(sequences, length, arguments.repeats)
            for direction, seconds in zip(("forward", "backward"), times, strict=True):
                best = theirs.get((pack, direction), float("inf"))
                theirs[pack, direction] = min(best, seconds)
        for key, seconds in own_times(arguments.program, threads).items():
            own[key] = min(own.get(key, float("inf")), seconds)

    print(f"PyTorch {torch.__version__}, {threads} threads, {HEADS} heads of {HEAD_DIM}, fp32")
    print(f"{'pack':>12} {'':>9} {'PyTorch':>10} {'Hydraulis':>10}  ratio")
    for (pack, direction), seconds in sorted(own.items()):
        sequences, length = PACKS[pack]
        reference = theirs[pack, direction]
        print(
            f"{sequences:>4} x {length:<5} {direction:>9} {reference * 1e3:>7.2f} ms "
            f"{seconds * 1e3:>7.2f} ms {reference / seconds:>6.2f}"
        )


if __name__ == "__main__":
    main()
