#!/usr/bin/env bash
# experiments/memory_check.sh [build folder]: short real trainings of a small decoder in several
# layouts on 1, 2 and 4 ranks; prints, for every rank, the most device memory that a step used, what
# the memory model predicts for the rank's stage, and the error.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
cmake --build "$build" --target test_runtime_mpi >/dev/null
for ranks in 1 2 4; do
  tests/mpirun.sh "$ranks" "$build/tests/test_runtime_mpi" --gtest_filter='*MemoryOf*' |
    grep -E '^memory|FAILED'
done
