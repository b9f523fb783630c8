#!/usr/bin/env bash
# Tunes the plan of the case study (LLaMA-32B on 64 A800, 32K context, 200,000 tokens a batch) on
# the token lengths of real web pages and on lengths drawn like CommonCrawl's, and compares it on
# held-out iterations with the seven strategies published for this case study: with their own
# optimizer layout, and with the tuned one, which tells what the strategies alone gain.
#   experiments/tune/case_study.sh [HYDRAULIS] [options of `hydraulis tune` …]
# Outputs go to out/tune/TRACE.
set -euo pipefail
cd "$(dirname "$0")/../.."
hydraulis=${1:-build/release/hydraulis}
shift || true

system=(--model llama-32b --cluster a800-64 --context 32768 --tokens-per-batch 200000)
published="4x(1,16,1); (1,16,1)+2x(1,8,3); (1,16,1)+6x(1,8,1); (1,16,1)+12x(1,4,1); \
(1,8,3)+10x(1,4,1); (1,8,1)+14x(1,4,1); 8x(1,4,2)"
for trace in web-gpt2 commoncrawl; do
  out=out/tune/$trace
  mkdir -p "$out"
  "$hydraulis" plan "${system[@]}" --strategies "$published" -o "$out/published.json" >/dev/null
  printf '\n== %s\n' "$trace"
  TIMEFORMAT='%R s, of processor time %U s'
  time "$hydraulis" tune "${system[@]}" --trace "$trace" --over-context truncate --threads 2 \
    --against "$out/published.json" -o "$out/tuned.json" "$@" | tee "$out/tune.txt"
  layout=$(sed -n 's/^optimizer layout: dp\([0-9]*\) tp\([0-9]*\) pp\([0-9]*\)$/\1,\2,\3/p' \
    "$out/tune.txt" | head -n 1)
  "$hydraulis" plan "${system[@]}" --strategies "$published" --optimizer-layout "$layout" \
    -o "$out/published_layout.json" >/dev/null
  printf '\n== %s: the held-out iterations again, the published strategies on the layout %s\n' \
    "$trace" "$layout"
  for plan in tuned published published_layout; do
    "$hydraulis" simulate --plan "$out/$plan.json" --trace "$trace" --over-context truncate \
      --seed 1 --iterations 100 >"$out/$plan.txt"
    printf '%-18s %s\n' "$plan" "$(sed -n 's/^throughput *//p' "$out/$plan.txt")"
  done
done
