#!/usr/bin/env bash
# Runs clang-tidy (checks in .clang-tidy) over the given source files, or over all of the project's
# own outside the tests. Needs a configured build/release. Prints findings; exits non-zero if any.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -f build/release/compile_commands.json ] || cmake --preset release >/dev/null

if [ $# -gt 0 ]; then files=("$@"); else mapfile -t files < <(git ls-files '*.cpp' ':!tests'); fi
# The compile commands are GCC's: its own warning flags mean nothing to clang.
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet \
  -p build/release --extra-arg=-Wno-unknown-warning-option 2> >(grep -v 'warnings\? generated' >&2)
