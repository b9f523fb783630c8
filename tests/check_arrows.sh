#!/usr/bin/env bash
# Checks that folders include only from the folders they may use. Lists every #include that runs
# against the arrows as "file:line: folder may not include other" and exits non-zero if there is one.
#   tests/check_arrows.sh            this tree
#   tests/check_arrows.sh FOLDER     another one
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

# A folder and those it may use, itself apart. sim and runtime never see each other.
declare -A may_use=(
  [base]=""
  [traces]="base"
  [kernels]="base"
  [costmodel]="base"
  [costmodel/profiler]="base costmodel kernels"
  [planner]="base traces costmodel"
  [sim]="base traces costmodel planner"
  [runtime]="base traces kernels costmodel planner"
  [report]="base traces costmodel planner sim"
  [cli]="base traces kernels costmodel costmodel/profiler planner sim runtime report"
)

# The room of a path: its first folder, except for the profiler, which is a library of its own so
# that planning and simulating link neither MPI nor CUDA.
room_of() { if [[ $1 == costmodel/profiler/* ]]; then echo costmodel/profiler; else echo "${1%%/*}"; fi; }

against=0
while IFS=: read -r file line text; do
  file=${file#./}
  included=$(sed -E 's/^[^"]*"([^"]+)".*/\1/' <<<"$text")
  [[ $included == */* ]] || continue
  from=$(room_of "$file")
  to=$(room_of "$included")
  if [ "$from" = "$to" ]; then continue; fi
  if [ -z "${may_use[$from]+known}" ]; then
    echo "$file:$line: folder $from is not in the table of $0"
  elif [[ " ${may_use[$from]} " != *" $to "* ]]; then
    echo "$file:$line: $from may not include $included"
  else
    continue
  fi
  against=$((against + 1))
done < <(find . \( -path ./build -o -path ./out -o -path ./.git -o -path ./tests -o -path ./experiments \) \
  -prune -o -type f \( -name '*.h' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.cu' -o -name '*.inc' \) \
  -exec grep -HnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' {} +)
[ "$against" -eq 0 ]
