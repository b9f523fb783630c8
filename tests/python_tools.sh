#!/usr/bin/env bash
# Prints the path of ruff: the one on PATH, or one installed into build/tools. It needs the network
# only the first time.
set -euo pipefail
cd "$(dirname "$0")/.."
ruff=build/tools/bin/ruff
if command -v ruff; then exit; fi
if [ ! -x "$ruff" ]; then
  python3 -m venv build/tools >&2
  build/tools/bin/pip install --quiet --disable-pip-version-check ruff==0.17.6 >&2
fi
echo "$ruff"
