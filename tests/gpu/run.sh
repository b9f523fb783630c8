#!/usr/bin/env bash
# tests/gpu/run.sh: everything that a machine with nvcc and a GPU can tell, in under nine minutes. Builds
# for that GPU, measures what it can do at most, runs the conformance tests of the CUDA backend on it,
# small ones under compute-sanitizer, the benchmarks of its kernels, the profiler, a short training,
# and lays what the simulator predicts beside it. Parts that fail do not stop the others; a table at
# the end says how each ended, and the exit status is 1 if one failed. Without a GPU or nvcc: one line
# and exit status 2.
#   OUT=gpu-results   where results go
#   BUILD=build/gpu   build folder; with BUILT=1 the programs in it are used as they are (no nvcc needed)
#   LIMIT=530         seconds for all parts together
set -uo pipefail
cd "$(dirname "$0")/../.."
out=${OUT:-gpu-results}
build=${BUILD:-build/gpu}
limit=${LIMIT:-530}
PATH=$PATH:/usr/local/cuda/bin

gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
if [ "$gpus" -eq 0 ]; then
  echo "tests/gpu/run.sh: no GPU here (nvidia-smi -L lists none)" >&2
  exit 2
fi
if [ -z "${BUILT:-}" ] && ! command -v nvcc >/dev/null; then
  echo "tests/gpu/run.sh: no nvcc here; BUILT=1 BUILD=FOLDER uses programs built elsewhere" >&2
  exit 2
fi
mkdir -p "$out" || exit 1
hydraulis=$build/hydraulis
names=()
results=()
failed=0

# part NAME SECONDS COMMAND...: its output goes to $out/NAME.txt
part() {
  local name=$1 seconds=$2 start=$SECONDS status=0 result
  shift 2
  local left=$((limit - SECONDS))
  if [ "$left" -lt "$seconds" ]; then seconds=$left; fi
  printf '== %s\n' "$name"
  if [ "$seconds" -lt 5 ]; then
    result="not run: the time is over"
    status=1
  else
    # A function needs a shell of its own to be stopped with all that it started.
    timeout --kill-after=5 "$seconds" bash -c "$prelude"'"$@"' part "$@" >"$out/$name.txt" 2>&1 ||
      status=$?
    tail -n 25 "$out/$name.txt"
    case $status in
      0) result="ok" ;;
      124 | 137) result="stopped after $seconds s" ;;
      *) result="failed ($status)" ;;
    esac
  fi
  [ "$status" -eq 0 ] || failed=1
  names+=("$name")
  results+=("$(printf '%4d s  %s' $((SECONDS - start)) "$result")")
}

machine() {
  nvidia-smi
  nvidia-smi --query-gpu=name,memory.total,clocks.max.sm,clocks.max.mem,power.limit --format=csv
  nvcc --version || true
  nproc
}

build_all() {
  [ -z "${BUILT:-}" ] || return 0
  tests/install_packages.sh all || return 1
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DHYDRAULIS_CUDA=ON \
    -DHYDRAULIS_CUDA_ARCHITECTURES=native || return 1
  cmake --build "$build" -j "$(nproc)" --target hydraulis test_cuda_gpu bench_cuda_kernels \
    bench_cuda_gemm bench_cuda_attention
}

conformance() { "$build/tests/cuda_emulator/test_cuda_gpu" --gtest_output="xml:$out/conformance.xml"; }

sanitizer() { # TOOL FILTER
  command -v compute-sanitizer || { echo "compute-sanitizer is not here"; return 1; }
  compute-sanitizer --tool "$1" --error-exitcode 9 "$build/tests/cuda_emulator/test_cuda_gpu" \
    --gtest_filter="$2"
}

benchmark() { "$build/experiments/benchmarks/bench_cuda_$1" --csv "$out/$1.csv"; }

ranks() { # COMMAND...: a process for each GPU
  if [ "$gpus" -gt 1 ]; then tests/mpirun.sh "$gpus" "$@"; else "$@"; fi
}

profile() {
  ranks "$hydraulis" profile --quick --backend cuda --model "$out/config.json" --max-tokens 8192 \
    -o "$out/profile.h5" && "$hydraulis" profile show "$out/profile.h5"
}

# Four layers of a decoder with a billion parameters, on packs of up to 8192 tokens.
job_files() {
  cat >"$out/config.json" <<'JSON'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 4096,
 "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 4,
 "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "hidden_act": "silu",
 "max_position_embeddings": 8192, "initializer_range": 0.02, "rms_norm_eps": 1e-5,
 "rope_theta": 500000.0, "tie_word_embeddings": true, "attention_bias": false, "mlp_bias": false,
 "torch_dtype": "bfloat16"}
JSON
  local gib
  gib=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | sort -n | head -n 1)
  cat >"$out/cluster.json" <<JSON
{"name": "this machine", "origin": "gpu-results", "nodes": 1, "devices_per_node": $gpus,
 "device": {"name": "gpu", "memory_gib": $((gib / 1024)), "peak_bf16_teraflops": ${PEAK:-989},
            "memory_bandwidth_gigabytes_per_second": ${BANDWIDTH:-4800}, "reserved_gib": 4},
 "intra_node": {"bandwidth_gigabytes_per_second": 200, "latency_microseconds": 10},
 "notes": ["peak and bandwidth of an H200 unless PEAK (TFLOP/s) and BANDWIDTH (GB/s) say otherwise"]}
JSON
  cat >"$out/run.json" <<JSON
{"plan": "plan.json", "output": "run", "steps": 12, "seed": 1, "device": "cuda",
 "data": {"sets": [{"path": "$PWD/experiments/data/corpus/corpus.jsonl.gz",
                    "tokenizer": "bpe:$PWD/experiments/data/corpus", "end_token": 0}],
          "over_context": "truncate"},
 "optimizer": {"learning_rate": 3e-4, "weight_decay": 0.1, "clip_norm": 1.0},
 "timeline_steps": 12}
JSON
}

train() {
  rm -rf "$out/run"
  "$hydraulis" trace import experiments/data/corpus/corpus.jsonl.gz \
    --tokenizer bpe:experiments/data/corpus -o "$out/corpus.h5" || return 1
  local profile=()
  [ ! -f "$out/profile.h5" ] || profile=(--profile "$out/profile.h5")
  "$hydraulis" plan --model "$out/config.json" --cluster "$out/cluster.json" "${profile[@]}" \
    --trace "$out/corpus.h5" --context 8192 --tokens-per-batch $((65536 * gpus)) \
    --over-context truncate -o "$out/plan.json" || return 1
  ranks "$hydraulis" train "$out/run.json"
}

predicted() {
  "$hydraulis" replay "$out/run/programs" --plan "$out/plan.json" --profile "$out/profile.h5" \
    --timeline "$out/predicted.h5" || return 1
  "$hydraulis" diff "$out/predicted.h5" "$out/run/timeline.h5" --skip 3
}

case $out in /*) ;; *) out=$PWD/$out ;; esac
prelude="$(declare -f machine build_all conformance sanitizer benchmark ranks profile job_files train predicted)
out=$(printf %q "$out") build=$(printf %q "$build") hydraulis=$(printf %q "$hydraulis") gpus=$gpus
"
part machine 10 machine
part build 270 build_all
part kernels 60 benchmark kernels # each measures the ceilings first
part gemm 60 benchmark gemm
part attention 60 benchmark attention
part conformance 90 conformance
part memcheck 60 sanitizer memcheck 'CudaOptimizer*:CudaElementwise*:CudaRotary*:CudaSwiglu*'
part racecheck 60 sanitizer racecheck 'CudaAttention.GroupedQueries:CudaAttentionBackward.RepeatsUnderAnyOrder'
part job 10 job_files
part profile 90 profile
part train 90 train
part predicted 30 predicted

{
  printf '\n%-12s %s\n' part result
  for i in "${!names[@]}"; do printf '%-12s %s\n' "${names[$i]}" "${results[$i]}"; done
  printf '%d s in all; results in %s\n' "$SECONDS" "$out"
} | tee "$out/summary.txt"
exit "$failed"
