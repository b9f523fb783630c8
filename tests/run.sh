#!/usr/bin/env bash
# Installs what is missing, builds everything and runs all tests. Its last line is
# "N passed, N failed"; the exit status is 0 only when nothing failed.
#   tests/run.sh           the release build
#   tests/run.sh asan      another preset of CMakePresets.json (debug, asan, tsan)
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}

nothing_ran() {
  echo "tests/run.sh: $1"
  echo "0 passed, 1 failed"
  exit 1
}

tests/install_packages.sh all || nothing_ran "packages are missing"
cmake --preset "$preset" || nothing_ran "configuring failed"
cmake --build --preset "$preset" -j "$(nproc)" || nothing_ran "the build failed"

log=build/$preset/tests.log
status=0
ctest --preset "$preset" -j "$(nproc)" 2>&1 | tee "$log" || status=$?
summary=$(sed -nE 's/^[0-9]+% tests passed, ([0-9]+) tests failed out of ([0-9]+)$/\1 \2/p' "$log")
[ -n "$summary" ] || nothing_ran "no test ran"
read -r failed total <<<"$summary"
echo "$((total - failed)) passed, $failed failed"
exit "$status"
