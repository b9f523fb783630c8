// Stage times composed from a profile of operators beside whole stages measured in training steps:
// forward and backward of a decoder of 6 layers (hidden 256, vocabulary 4096) on one rank with one
// thread, by tokens of the micro-batch and number of sequences in it. The profile is that of
// HYDRAULIS_PROFILE, made on the same machine by
//   hydraulis profile --model MODEL --tp 1 --threads 1 -o machine.h5
// where MODEL has the sizes below; without it nothing runs.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>

#include "base/random.h"
#include "costmodel/compose.h"
#include "planner/program/lower.h"
#include "runtime/train_step.h"

namespace hydraulis {
namespace {

constexpr int kVocabulary = 4096;
constexpr int kWarmUpSteps = 6;

DecoderSpec decoder() {
  DecoderSpec result;
  result.shape = {"6 layers", 6, 256, 688, 4, 2, 64, kVocabulary, false, false, false};
  return result;
}

MicroBatchTokens random_pack(std::uint32_t tokens, std::uint32_t sequences) {
  MicroBatchTokens pack;
  Random random(1);
  for (std::uint32_t i = 0; i < sequences; ++i) pack.lengths.push_back(tokens / sequences);
  for (std::uint32_t i = 0; i < tokens; ++i) {
    pack.ids.push_back(static_cast<std::int32_t>(random.below(kVocabulary)));
  }
  pack.targets = next_token_targets(pack.lengths, pack.ids);
  return pack;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void composed_stage(benchmark::State& state) {
  const char* file = std::getenv("HYDRAULIS_PROFILE");
  if (file == nullptr) {
    state.SkipWithError("HYDRAULIS_PROFILE names no profile of operators");
    return;
  }
  const auto tokens = static_cast<std::uint32_t>(state.range(0));
  const auto sequences = static_cast<std::uint32_t>(state.range(1));
  const DecoderSpec spec = decoder();
  CostModel model;
  model.model = spec.shape;
  model.cluster.nodes = 1;
  model.cluster.devices_per_node = 1;
  const auto operators = measured_operators(read_operator_profile(file), file);
  model.cluster.device.name = operators->profile.machine.device;
  model.profile = compose_profile(operators, spec.shape, model.cluster);

  const CpuProcess process = start_cpu_process(1);
  const auto compute = make_cpu_compute(*process.device);
  const Backend backend{process.device.get(), compute.get(), process.world.get(), DataType::f32};
  const MicroBatchTokens pack = random_pack(tokens, sequences);
  MicroBatch batch;
  batch.lengths = pack.lengths;
  for (std::uint32_t i = 0; i < sequences; ++i) batch.sequence_ids.push_back(i);
  BatchPlan plan;
  // The backward of the last micro-batch also adds gradients up, which belongs to their reduction.
  MicroBatch other = batch;
  for (std::uint64_t& id : other.sequence_ids) id += sequences;
  plan.pipelines.push_back({Scheme{}, {batch, other}});
  const Program program = lower(plan, model);
  OptimizerShard shard(backend, spec, model.optimizer);
  shard.initialise(1);
  Executor executor(backend, spec, shard);
  UpdateSettings settings;
  ExecuteOptions options;
  options.record_events = true;
  std::vector<double> forward;
  std::vector<double> backward;
  const auto step = [&] {
    IterationOutcome mine;
    train_step(
        backend, executor, shard, program, [&](int, int) { return pack; }, settings, options,
        &mine);
    ++settings.update;
    for (const TimelineEvent& event : mine.events) {
      if (event.micro_batch != 0) continue;
      const double seconds = event.end_seconds - event.start_seconds;
      if (event.op == Op::forward) forward.push_back(seconds);
      if (event.op == Op::backward) backward.push_back(seconds);
    }
  };
  for (int i = 0; i < kWarmUpSteps; ++i) step();
  forward.clear();
  backward.clear();
  for (auto _ : state) step();

  const double squares = batch.sum_squares();
  const double whole = stage_cost(model, Scheme{}, 0)->of(squares, tokens);
  const double first = forward_cost(model, Scheme{}, 0)->of(squares, tokens);
  const double f = median(forward);
  const double b = median(backward);
  state.counters["forward_ms"] = 1e3 * f;
  state.counters["backward_ms"] = 1e3 * b;
  state.counters["forward_error_%"] = 100 * (first / f - 1);
  state.counters["backward_error_%"] = 100 * ((whole - first) / b - 1);
  state.counters["error_%"] = 100 * (whole / (f + b) - 1);
}

BENCHMARK(composed_stage)
    ->ArgNames({"tokens", "sequences"})
    ->ArgsProduct({{512, 1024, 2048, 4096}, {1, 4}})
    ->Iterations(9)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace hydraulis
