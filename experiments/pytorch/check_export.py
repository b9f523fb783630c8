#!/usr/bin/env python3
"""Loads an exported model in transformers and compares it with numbers computed elsewhere.

    check_export.py FOLDER LOGITS.json [TOLERANCE]

FOLDER is what `hydraulis checkpoint export-hf` wrote. LOGITS.json has `documents` (lists of token
ids) and `logits` (a list of rows for each document), or is a golden file (golden.py), whose first
document is compared. Prints the greatest difference relative to the greatest logit and fails above
the tolerance (1e-4).
"""

import json
import sys
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM


def main():
    folder, file = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    tolerance = float(sys.argv[3]) if len(sys.argv) > 3 else 1e-4
    logits = file.get("logits") or [file["logits_of_first_document"]]
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[key], f"{key}: {info[key]}"
    model = model.double().eval()
    worst = 0.0
    with torch.no_grad():
        for document, expected in zip(file["documents"], logits, strict=False):
            found = model(torch.tensor([document]), use_cache=False).logits[0]
            reference = torch.tensor(expected, dtype=torch.float64)
            assert found.shape == reference.shape, (found.shape, reference.shape)
            difference = ((found - reference).abs().max() / reference.abs().max()).item()
            worst = max(worst, difference)
    print(
        f"transformers {transformers.__version__}: {type(model).__name__}, "
        f"{len(logits)} documents, greatest relative difference {worst:.2e}"
    )
    sys.exit(worst > tolerance)


if __name__ == "__main__":
    main()
