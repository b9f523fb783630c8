"""The published settings and figures that experiments/published/run.py compares with.

Sources: the authors' repository (github lhy101/Hydraulis: models, data, batches, the ablation's
steps), the abstract of arXiv 2412.07894 (the range of speed-ups). The paper's tables of single
configurations are not available to us.
"""

MODELS = {"7B": "llama-7b", "13B": "llama-13b", "32B": "llama-32b"}
DEVICES = (16, 32, 64)
CONTEXTS = {"16K": 16384, "32K": 32768, "64K": 65536, "128K": 131072}
TRACES = ("commoncrawl", "github")
POLICIES = ("static-pack", "megatron", "deepspeed", "hotspa", "flexsp", "hydraulis")
EXISTING = ("megatron", "deepspeed", "hotspa")

# 200,000 tokens on 64 devices (train_CommonCrawl.sh), 100,000 on 32 (train_GitHub.sh).
TOKENS_PER_DEVICE = 3125
# Where the published schemes hold no such context, those derived with context parallelism and
# recomputation are considered too.
SCHEMES = "cp,recompute"
# Of the abstract: Hydraulis over existing systems.
HEADLINE = (1.32, 2.66)

# The ablation's steps (README of the repository) and the policies that are they.
ABLATION = (
    ("padding", "static-pad"),
    ("fixed-length packing", "static-pack"),
    ("dispatching, fixed-length packing", "static-dispatch"),
    ("two-stage assignment", "hydraulis-static"),
    ("dynamic heterogeneous strategies", "hydraulis"),
)
# The case study's strategies of the authors (7 of them), 32B on 64 devices, optimizer dp4 tp16.
STRATEGIES = (
    "4x(1,16,1); (1,16,1)+2x(1,8,3); (1,16,1)+6x(1,8,1); (1,16,1)+12x(1,4,1); "
    "(1,8,3)+10x(1,4,1); (1,8,1)+14x(1,4,1); 8x(1,4,2)"
)
# With the authors' coefficients, dispatch and packing over Wikipedia's lengths, no communication,
# 30 batches, worked out from their code on two cores: not measured on GPUs.
AUTHORS_PLANNER = {"static-pack": 1.00, "hydraulis-static": 1.27, "hydraulis": 1.54}
# The authors' own dispatch: 1,024 devices, some 1,600 sequences a batch, 244 pipelines; two cores.
AUTHORS_DISPATCH_SECONDS = (9.3, 13.5)
AUTHORS_PROPOSAL_SECONDS = 46.5

SCALES = (8, 16, 32, 64, 128, 256, 512, 1024)
