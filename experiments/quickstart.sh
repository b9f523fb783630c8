#!/usr/bin/env bash
# The case study from nothing: installs what is missing, builds the command, plans LLaMA-32B on 64
# A800 at 32K context with 200,000 tokens a batch, and simulates 100 iterations under every system:
# on the token lengths of real web pages and on lengths drawn like CommonCrawl's. Then a small model
# is trained for real on two processes of this machine, with a plan made from a profile of it, and what
# the simulator expects of the very programs that ran is laid beside what was measured.
# Outputs go to out/quickstart; nothing else is written but the build.
set -euo pipefail
cd "$(dirname "$0")/.."

tests/install_packages.sh build
build=build/release
mkdir -p build
log=build/quickstart.log
build_command() {
  # A tree already set up for the tests is used as it is.
  [ -f $build/build.ninja ] ||
    cmake --preset release -DHYDRAULIS_TESTS=OFF -DHYDRAULIS_BENCHMARKS=OFF || return 1
  cmake --build $build -j "$(nproc)" --target hydraulis
}
echo "building $build/hydraulis (log: $log)"
if ! build_command >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  exit 1
fi
hydraulis=$build/hydraulis

system=(--model llama-32b --cluster a800-64)
batches=(--tokens-per-batch 200000 --context 32768 --over-context truncate)
for trace in web-gpt2 commoncrawl; do
  out=out/quickstart/$trace
  mkdir -p "$out"
  printf '\n== %s: the strategy set\n' "$trace"
  "$hydraulis" plan "${system[@]}" --trace "$trace" "${batches[@]}" -o "$out/plan.json" |
    tee "$out/plan.txt"
  printf '\n== %s: 100 iterations under every system\n' "$trace"
  "$hydraulis" compare --policies static-pack,static-pad,hydraulis-static,hydraulis \
    --plan "$out/plan.json" --trace "$trace" "${batches[@]}" --iterations 100 |
    tee "$out/compare.txt"
  printf '\n== %s: the strategies chosen over time\n' "$trace"
  "$hydraulis" simulate --plan "$out/plan.json" --trace "$trace" "${batches[@]}" \
    --iterations 100 --timeline "$out/timeline.json" | tee "$out/simulate.txt"
done

out=out/quickstart/train
example=experiments/example
mkdir -p $out
printf '\n== a profile of this machine (under half a minute)\n'
profile=$out/machine.h5
tests/mpirun.sh 2 "$hydraulis" profile --quick --max-tokens 8192 --model $example/config.json \
  -o $profile | tee $out/profile.txt
printf '\n== a small model trained on two processes: the strategy set\n'
"$hydraulis" trace import experiments/data/corpus/corpus.jsonl.gz \
  --tokenizer bpe:experiments/data/corpus -o $out/corpus.h5 >$out/corpus.txt
"$hydraulis" plan --model $example/config.json --cluster $example/cluster.json --profile $profile \
  --trace $out/corpus.h5 --context 4096 --tokens-per-batch 8192 --over-context truncate \
  -o $out/plan.json | tee $out/plan.txt
printf '\n== the training (about a minute)\n'
rm -rf $out/run
tests/mpirun.sh 2 "$hydraulis" train $example/run.json | tee $out/train.txt
printf '\n== predicted against measured, the programs of the first eight steps but three\n'
"$hydraulis" replay $out/run/programs --plan $out/plan.json --profile $profile \
  --timeline $out/predicted.h5 >$out/replay.txt
"$hydraulis" diff $out/predicted.h5 $out/run/timeline.h5 --skip 3 | tee $out/diff.txt

cat <<END

Outputs, for each trace, in out/quickstart:
  plan.json      the strategy set (plan.txt: the same for people)
  compare.txt    the systems side by side
  simulate.txt   the iterations and the strategies chosen
  timeline.json  one iteration; open it at https://ui.perfetto.dev
and of the training in out/quickstart/train:
  machine.h5     the profile: \`hydraulis profile show\` prints it
  diff.txt       predicted against measured, down to kinds of instructions
  train.txt      loss, predicted and measured time by step
  run/           log.csv, sequences.csv, tensorboard, checkpoints, timeline.h5
END
