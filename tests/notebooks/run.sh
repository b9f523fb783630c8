#!/usr/bin/env bash
# Executes every notebook against files that the command makes:
#   tests/notebooks/run.sh [HYDRAULIS] [FOLDER]
# in a temporary folder, or, where one is named, there, and the outputs are stored in notebooks/.
# The Python packages of notebooks/requirements.txt are installed into build/notebooks the first
# time, which needs PyPI; where that cannot be reached, this says so and ends with 77 (skipped).
set -euo pipefail
cd "$(dirname "$0")/../.."
hydraulis=$(realpath "${1:-build/release/hydraulis}")

packages=build/notebooks
wanted=notebooks/requirements.txt
if ! cmp -s $wanted $packages/installed.txt; then
  if ! { python3 -m venv $packages &&
    $packages/bin/pip install --quiet --disable-pip-version-check -r $wanted; }; then
    echo "SKIPPED: the notebooks need the packages of $wanted, and PyPI cannot be reached" >&2
    exit 77
  fi
  cp $wanted $packages/installed.txt
fi

if [ $# -gt 1 ]; then
  inputs=$2
  store=(--write)
else
  inputs=$(mktemp -d)
  trap 'rm -rf "$inputs"' EXIT
  store=()
fi
export MPLCONFIGDIR=$PWD/$packages JUPYTER_PLATFORM_DIRS=1
$packages/bin/python notebooks/make_inputs.py --hydraulis "$hydraulis" --out "$inputs"
$packages/bin/python notebooks/run.py --inputs "$inputs" "${store[@]}"
