"""What the drivers that train for real share: the corpus, and running the command."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "experiments/data/corpus"

# "data" of a run file
CORPUS_DATA = {
    "sets": [
        {
            "path": str(CORPUS / "corpus.jsonl.gz"),
            "tokenizer": f"bpe:{CORPUS}",
            "end_token": 0,
        }
    ],
    "over_context": "truncate",
}


def call(command, log):
    """Runs a command; what it printed goes to `log`, and is shown when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    log.write_text(done.stdout + done.stderr)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout
