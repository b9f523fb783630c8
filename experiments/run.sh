#!/usr/bin/env bash
# Regenerates a result by its name, from nothing but a build:
#   experiments/run.sh                   the names, what each gives and where it is written up
#   experiments/run.sh NAME [--small]
# Outputs go to out/NAME. --small takes few iterations, for a look or a test. HYDRAULIS names another
# command than build/release/hydraulis; experiments that train take all cores of this machine.
set -euo pipefail
cd "$(dirname "$0")/.."

list() {
  cat <<'NAMES'
case-study            systems side by side: 32B, 64 A800, web and CommonCrawl lengths     README.md
published-strategies  the same with the seven published strategies, computation alone     README.md
published             7B, 13B, 32B on 16 to 64 devices, four contexts, six systems     docs/experiments.md
published-ablation    the case study step by step: padding to heterogeneous strategies  docs/experiments.md
published-scale       time to plan on 8 to 1,024 devices                                docs/experiments.md
flexsp                FlexSP's main table, theirs beside ours                           docs/policies.md
network               sweep: the case study on half, as and twice the assumed bandwidth   README.md
sharing               sweep: policies on networks that transfers share                     docs/simulator.md
capacity              sweep: 13B on 16 to 64 A800, four networks                          notebooks
tuning                the tuned plan of the case study on held-out iterations             tune/README.md
tuning-training       the tuned plan in real training on two ranks                        tune/README.md
planner-constants     what each constant of the planner is worth                          tune/README.md
policies-trained      every policy that trains, measured and simulated, on this machine  docs/policies.md
layouts               sixteen layouts predicted and measured on this machine              validation/README.md
measured-a100         published A100 measurements predicted                               validation/README.md
memory                device memory of a rank against the memory model                    README.md
speed                 every benchmark                                                     README.md
profile               a profile of this machine on two ranks
notebooks             inputs of the notebooks; the notebooks with their outputs           notebooks
NAMES
}

name=${1:-}
small=no
[ "${2:-}" = --small ] && small=yes
if [ -z "$name" ] || [ "$name" = list ]; then
  list
  exit 0
fi
if ! list | grep -q "^$name "; then
  echo "experiments/run.sh: no experiment named '$name'; without arguments it lists them" >&2
  exit 2
fi
hydraulis=$(realpath "${HYDRAULIS:-build/release/hydraulis}")
if [ ! -x "$hydraulis" ]; then
  echo "experiments/run.sh: $hydraulis is not there; build it: tests/run.sh or experiments/quickstart.sh" >&2
  exit 2
fi
out=out/$name
mkdir -p "$out"
iterations=100
[ $small = no ] || iterations=6

system=(--model llama-32b --cluster a800-64)
batches=(--tokens-per-batch 200000 --context 32768 --over-context truncate)
published="4x(1,16,1); (1,16,1)+2x(1,8,3); (1,16,1)+6x(1,8,1); (1,16,1)+12x(1,4,1); \
(1,8,3)+10x(1,4,1); (1,8,1)+14x(1,4,1); 8x(1,4,2)"

# Every policy of the comparison: the table for people, JSON, HDF5 and the page.
compare() { # folder, options of compare...
  local folder=$1
  shift
  mkdir -p "$folder"
  "$hydraulis" compare "$@" --iterations $iterations --results "$folder/results.h5" --json \
    >"$folder/compare.json"
  "$hydraulis" compare "$@" --iterations $iterations | tee "$folder/compare.txt"
  "$hydraulis" report "$folder/results.h5" -o "$folder/report.html"
}

sweep() { # sweep file
  local file=$out/sweep.json
  if [ $small = yes ]; then
    sed -E 's/"iterations": [0-9]+/"iterations": 2/' "$1" >"$file"
  else
    cp "$1" "$file"
  fi
  "$hydraulis" sweep "$file" -o "$out/results.h5" | tee "$out/sweep.txt"
  "$hydraulis" report "$out/results.h5" -o "$out/report.html"
}

profile() { # options of profile...
  [ -f out/profile/machine.h5 ] && return
  mkdir -p out/profile
  tests/mpirun.sh 2 "$hydraulis" profile --max-tokens 8192 --threads 1 \
    --model experiments/example/config.json -o out/profile/machine.h5 "$@"
}

case $name in
  case-study)
    for trace in web-gpt2 commoncrawl; do
      mkdir -p "$out/$trace"
      "$hydraulis" plan "${system[@]}" --trace $trace "${batches[@]}" -o "$out/$trace/plan.json" \
        >"$out/$trace/plan.txt"
      printf '\n== %s\n' $trace
      compare "$out/$trace" --policies static-pack,static-pad,hydraulis-static,hydraulis \
        --plan "$out/$trace/plan.json" --trace $trace "${batches[@]}"
    done
    ;;
  published-strategies)
    "$hydraulis" plan --context 32768 --strategies "$published" -o "$out/plan.json" >"$out/plan.txt"
    compare "$out" --policies static-pack,hydraulis-static,hydraulis --plan "$out/plan.json" \
      --trace wikipedia --tokens-per-batch 200000 --over-context truncate --no-communication
    ;;
  published | published-ablation | published-scale)
    part=${name#published}
    part=${part#-}
    options=(--iterations $iterations)
    [ $small = no ] || options=(--iterations 2 --small)
    python3 experiments/published/run.py "${part:-grid}" --hydraulis "$hydraulis" \
      --out "$out" "${options[@]}"
    ;;
  flexsp)
    options=()
    [ $small = no ] || options=(--iterations 2 --small)
    python3 experiments/flexsp/table.py --hydraulis "$hydraulis" "${options[@]}" |
      tee "$out/table.md"
    ;;
  network | sharing | capacity) sweep "experiments/sweeps/$name.json" ;;
  tuning)
    options=()
    [ $small = no ] || options=(--search-iterations 8 --iterations 4 --generations 1)
    experiments/tune/case_study.sh "$hydraulis" "${options[@]}"
    ;;
  tuning-training)
    profile
    python3 experiments/tune/training.py --profile out/profile/machine.h5 --hydraulis "$hydraulis"
    ;;
  planner-constants)
    cmake --build build/release --target bench_planner_effort
    build/release/experiments/bench_planner_effort --benchmark_format=csv >"$out/effort.csv"
    python3 experiments/tune/table.py <"$out/effort.csv" | tee "$out/table.md"
    ;;
  layouts)
    profile
    options=()
    [ $small = no ] || options=(--rounds 1 --steps 4 --ranks 1 2)
    python3 experiments/validation/layouts.py --profile out/profile/machine.h5 \
      --hydraulis "$hydraulis" --out "$out" "${options[@]}"
    ;;
  policies-trained)
    options=(--profile notebooks/data/machine.h5 --small)
    if [ $small = no ]; then
      profile
      options=(--profile out/profile/machine.h5)
    fi
    python3 experiments/training_policies.py --hydraulis "$hydraulis" --out "$out" \
      "${options[@]}" | tee "$out/table.md"
    ;;
  measured-a100)
    "$hydraulis" validate experiments/validation/a100_selene.csv | tee "$out/validate.txt"
    ;;
  memory) experiments/memory_check.sh build/release | tee "$out/memory.txt" ;;
  speed)
    cmake --build build/release
    for bench in build/release/experiments/bench_*; do
      program=$(basename "$bench")
      case $program in
        bench_communicator) tests/mpirun.sh 2 "$bench" ;;
        bench_composed_stage) continue ;; # compares with profiles: experiments/validation
        *) "$bench" --benchmark_out="$out/$program.json" ;;
      esac | tee "$out/$program.txt"
    done
    ;;
  profile)
    options=()
    [ $small = no ] || options=(--quick --time-limit 20)
    profile "${options[@]}"
    "$hydraulis" profile show out/profile/machine.h5
    ;;
  notebooks)
    tests/notebooks/run.sh "$hydraulis" "$out"
    ;;
esac
printf '\n%s: outputs are in %s\n' "$name" "$out"
