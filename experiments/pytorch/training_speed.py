"""Whole training steps of a decoder of 12 layers, hidden size 512, vocabulary 8192: PyTorch's CPU
build against ours.

Both do forward, backward, clipping and AdamW in single precision on the same packs (2048 tokens,
four documents that do not see one another) with the same threads, and take turns in one run: a few
steps of PyTorch, then one run of `bench_training`. Medians of all rounds count, of the wall clock
and of the processor time, which other work on the machine disturbs less.

PyTorch's side is a model written for speed: fused projections, its own rms_norm, one call of its
scaled_dot_product_attention a document (or one call a pack with a block mask: whichever is faster
is taken), its fused AdamW, gradients set to None. It is timed as it stands and, with --compile,
through torch.compile.

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python experiments/pytorch/training_speed.py \
        build/release/experiments/bench_training --threads 2
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, HIDDEN, FFN, HEADS, VOCABULARY = 12, 512, 1376, 8, 8192
DOCUMENTS = [900, 600, 348, 200]
TOKENS = sum(DOCUMENTS)


def rotary_tables():
    positions = torch.cat([torch.arange(length) for length in DOCUMENTS]).float()
    half = HIDDEN // HEADS // 2
    angles = torch.outer(positions, 10000.0 ** (-torch.arange(half) / half))
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """x [heads, tokens, d]."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm = nn.Parameter(torch.ones(HIDDEN))
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.output = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.mlp_norm = nn.Parameter(torch.ones(HIDDEN))
        self.gate_up = nn.Linear(HIDDEN, 2 * FFN, bias=False)
        self.down = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x, cos, sin, mask):
        y = F.rms_norm(x, (HIDDEN,), self.attention_norm, 1e-5)
        qkv = self.qkv(y).view(TOKENS, 3, HEADS, HIDDEN // HEADS).permute(1, 2, 0, 3)
        q, k, v = rotate(qkv[0], cos, sin), rotate(qkv[1], cos, sin), qkv[2]
        if mask is None:
            parts = zip(*(t.split(DOCUMENTS, dim=1) for t in (q, k, v)), strict=True)
            attended = torch.cat(
                [
                    F.scaled_dot_product_attention(a[None], b[None], c[None], is_causal=True)[0]
                    for a, b, c in parts
                ],
                dim=1,
            )
        else:
            attended = F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask)[0]
        x = x + self.output(attended.transpose(0, 1).reshape(TOKENS, HIDDEN))
        y = F.rms_norm(x, (HIDDEN,), self.mlp_norm, 1e-5)
        gate, up = self.gate_up(y).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.Parameter(torch.ones(HIDDEN))
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        cos, sin = rotary_tables()
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, ids, targets, mask):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin, mask)
        logits = self.head(F.rms_norm(x, (HIDDEN,), self.norm, 1e-5))
        return F.cross_entropy(logits, targets, ignore_index=-1, reduction="sum")


def make_packs(count):
    packs = []
    for _ in range(count):
        documents = [torch.randint(VOCABULARY, (length,)) for length in DOCUMENTS]
        targets = [torch.cat([ids[1:], torch.tensor([-1])]) for ids in documents]
        packs.append((torch.cat(documents), torch.cat(targets)))
    return packs


class Trainer:
    def __init__(self, packs, compiled, masked):
        torch.manual_seed(1)
        self.packs = make_packs(packs)
        self.model = Decoder()
        self.run = torch.compile(self.model) if compiled else self.model
        decayed = [p for p in self.model.parameters() if p.dim() > 1]
        others = [p for p in self.model.parameters() if p.dim() == 1]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": 0.1},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=1e-3,
            betas=(0.9, 0.95),
            fused=True,
        )
        self.mask = None
        if masked:
            document = torch.repeat_interleave(
                torch.arange(len(DOCUMENTS)), torch.tensor(DOCUMENTS)
            )
            self.mask = (document[:, None] == document[None]).tril()

    def step(self):
        """Seconds by the wall clock and of processor time."""
        begin, processor = time.perf_counter(), time.process_time()
        targets = sum(int((targets >= 0).sum()) for _, targets in self.packs)
        for ids, pack_targets in self.packs:
            (self.run(ids, pack_targets, self.mask) / targets).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - begin, time.process_time() - processor


def own_run(program, threads, packs):
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    output = subprocess.run(
        [
            program,
            f"--benchmark_filter=/threads:{threads}/packs:{packs}/",
            "--benchmark_format=json",
        ],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    ).stdout
    (run,) = json.loads(output)["benchmarks"]
    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="bench_training")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--packs", type=int, default=1, choices=(1, 4), help="packs a step")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="PyTorch steps a round")
    parser.add_argument("--compile", action="store_true", help="through torch.compile")
    parser.add_argument(
        "--attention",
        choices=("documents", "masked", "faster"),
        default="faster",
        help="one call a document, one masked call a pack, or whichever a trial finds faster",
    )
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    trainers, trial = {}, {}
    for masked in {"documents": (0,), "masked": (1,), "faster": (0, 1)}[arguments.attention]:
        trainers[masked] = Trainer(arguments.packs, arguments.compile, masked)
        trainers[masked].step()
        trial[masked] = min(trainers[masked].step()[0] for _ in range(2))
    masked = min(trial, key=trial.get)
    trainer = trainers.pop(masked)
    trainers.clear()

    theirs, own = [], []
    for number in range(arguments.rounds):
        trainer.step()
        theirs += [trainer.step() for _ in range(arguments.steps)]
        own.append(own_run(arguments.program, arguments.threads, arguments.packs))
        print(
            f"round {number + 1}: PyTorch {theirs[-1][0]:.3f} s, "
            f"Hydraulis {own[-1]['step_s']:.3f} s",
            file=sys.stderr,
        )

    tokens = arguments.packs * TOKENS
    their_wall, their_processor = (statistics.median(times) for times in zip(*theirs, strict=True))
    their_best = min(wall for wall, _ in theirs)
    own_wall, own_processor = (
        statistics.median(run[key] for run in own) for key in ("step_s", "processor_s")
    )
    own_best = min(run["best_step_s"] for run in own)
    how = "one masked call a pack" if masked else "one call a document"
    print(
        f"PyTorch {torch.__version__}{' compiled' if arguments.compile else ''}, attention: {how}, "
        f"{arguments.threads} threads, {tokens} tokens a step"
    )
    print(f"{'':>10} {'tokens/s':>9} {'median s':>9} {'best s':>8} {'processor s':>12}")
    for name, wall, best, processor in (
        ("PyTorch", their_wall, their_best, their_processor),
        ("Hydraulis", own_wall, own_best, own_processor),
    ):
        print(f"{name:>10} {tokens / wall:>9.0f} {wall:>9.3f} {best:>8.3f} {processor:>12.3f}")
    print(
        f"{'ratio':>10} {their_wall / own_wall:>9.3f} {'':>9} {their_best / own_best:>8.3f} "
        f"{their_processor / own_processor:>12.3f}"
    )
    print(f"share of measured peak: {max(run['share_of_peak'] for run in own):.2f}")


if __name__ == "__main__":
    main()
