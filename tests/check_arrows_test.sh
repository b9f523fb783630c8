#!/usr/bin/env bash
# check_arrows.sh finds what it must and lets pass what it may, on small trees made here.
set -euo pipefail
script=$(cd "$(dirname "$0")" && pwd)/check_arrows.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0

expect() { # refused|allowed, file, included
  rm -rf "${tree:?}"/*
  mkdir -p "$tree/$(dirname "$2")"
  printf '#include <vector>\n#include "%s"\n' "$3" >"$tree/$2"
  local got=allowed
  "$script" "$tree" >/dev/null || got=refused
  if [ "$got" != "$1" ]; then
    echo "$2 including $3: expected $1, got $got"
    failed=1
  fi
}

expect allowed base/a.cpp base/b.h
expect allowed sim/a.cpp planner/program/program.h
expect allowed runtime/a.cpp kernels/device.h
expect allowed report/a.cpp sim/iterations.h
expect allowed costmodel/profiler/a.cpp kernels/device.h
expect allowed cli/profile.cpp costmodel/profiler/measure.h
expect allowed tests/sim/a_test.cpp runtime/trainer.h
expect refused base/a.h traces/sampler.h
expect refused traces/a.cpp costmodel/scheme.h
expect refused costmodel/a.cpp kernels/device.h
expect refused planner/a.cpp sim/engine.h
expect refused planner/policies/a.cpp costmodel/profiler/measure.h
expect refused sim/detail/a.h runtime/executor.h
expect refused runtime/a.cu sim/engine.h
expect refused report/a.cpp runtime/executor.h
expect refused sim/a.cpp cli/options.h
expect refused drawer/a.cpp base/error.h
exit "$failed"
