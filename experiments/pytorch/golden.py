#!/usr/bin/env python3
"""Golden values of tiny LLaMA models from PyTorch, for the tests of the runtime.

    python -m venv .venv && .venv/bin/pip install -r experiments/pytorch/requirements.txt
    .venv/bin/python experiments/pytorch/golden.py tests/data

Writes golden_NAME.json and golden_NAME.safetensors for each model below. The model is
transformers' LlamaForCausalLM in double precision; its norms and rotary angles, which transformers
rounds to float32 whatever the model's type, are kept in double precision too, so that the values
are exact to about 1e-13. How far the untouched float32 model is from them is written beside them.
README.md describes the fields.
"""

import json
import math
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

MODELS = {
    # Grouped-query attention: 6 query heads on 2 key/value heads; own head matrix.
    "llama_gqa": {
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
    },
    # The head is the embedding; one key/value head a query head.
    "llama_tied": {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 8,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
    },
    # Llama 3.1's rotary scaling with an original context short enough that all three of its
    # branches are taken, and heads wider than hidden_size / heads.
    "llama_scaled": {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 12,
        "rope_theta": 500.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
    },
}
VOCAB = 97
LENGTHS = [6, 1, 17, 2, 33, 9, 64, 5, 12, 3, 28, 1, 21, 7, 40, 11, 8, 15, 4, 25, 2, 19, 31, 10]
PROMPT_TOKENS = [2, 0, 17, 1, 5]  # of the first documents, in the loss with masks
SEQUENCES_PER_STEP = 7
STEPS = 20
OPTIMIZER = {
    "learning_rate": 3e-3,
    "beta1": 0.9,
    "beta2": 0.95,
    "epsilon": 1e-8,
    "weight_decay": 0.1,
    "clip_norm": 2.3,
}
SHOWN_GRADIENTS = ["model.norm.weight", "model.layers.0.self_attn.k_proj.weight"]


class DoubleNorm(torch.nn.Module):
    """RMSNorm without the detour over float32."""

    def __init__(self, norm):
        super().__init__()
        self.weight = norm.weight
        self.epsilon = norm.variance_epsilon

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.epsilon) * self.weight


def inverse_frequencies(config):
    """In double precision, from the published definition."""
    values = []
    for i in range(config["head_dim"] // 2):
        f = config["rope_theta"] ** (-2 * i / config["head_dim"])
        scaling = config.get("rope_scaling")
        if scaling:
            turns = scaling["original_max_position_embeddings"] * f / (2 * math.pi)
            low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
            smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
            f = (1 - smooth) * f / scaling["factor"] + smooth * f
        values.append(f)
    return torch.tensor(values, dtype=torch.float64)


class DoubleRotary(torch.nn.Module):
    def __init__(self, frequencies):
        super().__init__()
        self.frequencies = frequencies

    def forward(self, x, position_ids):
        angles = position_ids[..., None].to(torch.float64) * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def make_models(name, config):
    """The model in float32 as transformers has it, and in double precision throughout."""
    torch.manual_seed(sum(map(ord, name)))
    hf_config = LlamaConfig(
        vocab_size=VOCAB,
        max_position_embeddings=128,
        initializer_range=0.15,
        attn_implementation="sdpa",
        **config,
    )
    single = LlamaForCausalLM(hf_config).eval()
    with torch.no_grad():
        for parameter in single.parameters():
            if parameter.dim() == 1:  # norms that are not all one
                parameter.add_(0.2 * torch.randn_like(parameter))
    double = LlamaForCausalLM(hf_config).eval()
    double.load_state_dict(single.state_dict())
    double = double.double()
    frequencies = inverse_frequencies(config)
    theirs = single.model.rotary_emb.inv_freq.double()
    assert torch.allclose(frequencies, theirs, rtol=1e-6, atol=0), (frequencies, theirs)
    double.model.rotary_emb = DoubleRotary(frequencies)
    for module in list(double.modules()):
        for child_name, child in list(module.named_children()):
            if isinstance(child, modeling_llama.LlamaRMSNorm):
                setattr(module, child_name, DoubleNorm(child))
    return single, double


def token_losses(model, document):
    """Cross entropy of every token after the first, given those before it."""
    ids = torch.tensor([document])
    logits = model(ids, use_cache=False).logits[0]
    if len(document) == 1:
        return logits.new_zeros(0), logits
    losses = torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:], reduction="none")
    return losses, logits


def mean_loss(model, documents, prompts=None):
    """Sum over the batch's target tokens divided by their number."""
    total, count = 0.0, 0
    for index, document in enumerate(documents):
        losses, _ = token_losses(model, document)
        if prompts is not None:
            losses = losses[max(prompts[index] - 1, 0) :]
        total = total + losses.sum()
        count += losses.numel()
    return total / count, count


def named_gradients(model):
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def norm(tensors):
    return math.sqrt(sum(float((t.double() ** 2).sum()) for t in tensors))


def golden(name, config):
    single, double = make_models(name, config)
    torch.manual_seed(7)
    documents = [torch.randint(0, VOCAB, (n,)).tolist() for n in LENGTHS]

    loss, targets = mean_loss(double, documents)
    loss.backward()
    gradients = named_gradients(double)
    with torch.no_grad():
        single_loss, _ = mean_loss(single, documents)
        losses, logits = [], None
        for index, document in enumerate(documents):
            values, document_logits = token_losses(double, document)
            losses.append(values.tolist())
            if index == 0:
                logits = document_logits.tolist()
        masked, masked_targets = mean_loss(double, documents[: len(PROMPT_TOKENS)], PROMPT_TOKENS)
    assert abs(single_loss.item() - loss.item()) < 1e-5 * loss.item()

    result = {
        "made_by": f"torch {torch.__version__}, transformers {transformers.__version__}",
        "config": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": VOCAB,
            "max_position_embeddings": 128,
            "hidden_act": "silu",
            **config,
        },
        "weights": f"golden_{name}.safetensors",
        "documents": documents,
        "loss": loss.item(),
        "targets": targets,
        "loss_float32": single_loss.item(),
        "token_losses": losses,
        "logits_of_first_document": logits,
        "masked": {
            "prompt_tokens": PROMPT_TOKENS,
            "loss": masked.item(),
            "targets": masked_targets,
        },
        "gradient_norm": norm(gradients.values()),
        "gradient_norms": {n: norm([g]) for n, g in gradients.items()},
        "gradients": {n: gradients[n].flatten().tolist() for n in SHOWN_GRADIENTS},
    }
    weights = {n: p.detach().clone().contiguous() for n, p in single.named_parameters()}
    result["training"] = train(double, documents)
    result["training"]["losses_float32"] = [s["loss"] for s in train(single, documents)["steps"]]
    return result, weights


def train(model, documents):
    """20 steps of AdamW; matrices decay, norms do not. Gradients over the norm are scaled to it."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1]},
        {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        groups,
        lr=OPTIMIZER["learning_rate"],
        betas=(OPTIMIZER["beta1"], OPTIMIZER["beta2"]),
        eps=OPTIMIZER["epsilon"],
        weight_decay=OPTIMIZER["weight_decay"],
    )
    steps = []
    for step in range(STEPS):
        indices = [
            (step * SEQUENCES_PER_STEP + i) % len(documents) for i in range(SEQUENCES_PER_STEP)
        ]
        optimizer.zero_grad(set_to_none=True)
        loss, targets = mean_loss(model, [documents[i] for i in indices])
        loss.backward()
        gradient_norm = norm(p.grad for p in parameters)
        scale = min(1.0, OPTIMIZER["clip_norm"] / gradient_norm)
        for p in parameters:
            p.grad.mul_(scale)
        optimizer.step()
        steps.append(
            {
                "documents": indices,
                "targets": targets,
                "loss": loss.item(),
                "gradient_norm": gradient_norm,
            }
        )
    with torch.no_grad():
        validation, _ = mean_loss(model, documents)
    return {
        "optimizer": OPTIMIZER,
        "steps": steps,
        "loss_after": validation.item(),
        "parameter_norms_after": {
            n: norm([p.detach()]) for n, p in model.named_parameters() if p.requires_grad
        },
    }


def main():
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    for name, config in MODELS.items():
        result, weights = golden(name, config)
        file = folder / f"golden_{name}.safetensors"
        save_file(weights, file, metadata={"format": "pt"})
        file.chmod(0o644)
        text = json.dumps(result)
        (folder / f"golden_{name}.json").write_text(text + "\n")
        steps = result["training"]["steps"]
        print(
            f"{name}: {len(text)} bytes, loss {result['loss']:.6f} "
            f"(float32 {result['loss_float32']:.6f}), after {len(steps)} steps "
            f"{result['training']['loss_after']:.6f}; gradient norms "
            + " ".join(f"{s['gradient_norm']:.2f}" for s in steps)
        )


if __name__ == "__main__":
    main()
