// A whole training step of a decoder of 12 layers, hidden size 512 and a vocabulary of 8192 in
// single precision: forward, backward, clipping and AdamW on packs of 2048 tokens, each of four
// documents that do not see one another. Tokens a second by the median step, the processor time of
// a step, and the model's operations as a share of the multiply-adds that this machine does in
// registers, measured in turn with the steps. experiments/pytorch/training_speed.py runs it beside
// PyTorch.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>

#include "base/random.h"
#include "experiments/benchmarks/machine.h"
#include "planner/program/lower.h"
#include "runtime/train_step.h"

namespace hydraulis {
namespace {

constexpr std::uint32_t kDocuments[] = {900, 600, 348, 200};

DecoderSpec decoder() {
  DecoderSpec result;
  result.shape = {"12 layers", 12, 512, 1376, 8, 8, 64, 8192, false, false, false};
  return result;
}

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Forward and backward of one pack, a multiply-add counted as two.
double pack_operations(const ModelSpec& model) {
  double tokens = 0;
  double scores = 0;
  for (const double length : kDocuments) {
    tokens += length;
    scores += length * (length + 1) / 2;
  }
  const double hidden = model.hidden;
  const double attention_width = model.heads * model.head_dim;
  const double weights = model.layers * (4 * hidden * attention_width +
                                         3 * hidden * static_cast<double>(model.ffn_hidden)) +
                         hidden * model.vocab;
  return 6 * weights * tokens + 12 * model.layers * attention_width * scores;
}

void training_step(benchmark::State& state) {
  const auto threads = static_cast<int>(state.range(0));
  const auto packs = static_cast<int>(state.range(1));
  const CpuProcess process = start_cpu_process(threads);
  const auto compute = make_cpu_compute(*process.device);
  const Backend backend{process.device.get(), compute.get(), process.world.get(), DataType::f32};
  const DecoderSpec spec = decoder();
  CostModel model;
  model.model = spec.shape;
  model.cluster.nodes = 1;
  model.cluster.devices_per_node = 1;

  PipelinePlan pipeline;
  Random random(1);
  std::vector<MicroBatchTokens> tokens(static_cast<std::size_t>(packs));
  for (MicroBatchTokens& pack : tokens) {
    MicroBatch& batch = pipeline.micro_batches.emplace_back();
    for (const std::uint32_t length : kDocuments) {
      batch.sequence_ids.push_back(batch.sequence_ids.size());
      batch.lengths.push_back(length);
      for (std::uint32_t i = 0; i < length; ++i) {
        pack.ids.push_back(static_cast<std::int32_t>(random.below(spec.shape.vocab)));
      }
    }
    pack.lengths = batch.lengths;
    pack.targets = next_token_targets(pack.lengths, pack.ids);
  }
  BatchPlan plan;
  plan.pipelines.push_back(pipeline);
  const Program program = lower(plan, model);
  const TokenSource source = [&](int, int micro_batch) {
    return tokens[static_cast<std::size_t>(micro_batch)];
  };

  OptimizerShard shard(backend, spec, model.optimizer);
  shard.initialise(1);
  Executor executor(backend, spec, shard);
  UpdateSettings settings;
  const auto step = [&] {
    const StepOutcome outcome = train_step(backend, executor, shard, program, source, settings);
    ++settings.update;
    if (!outcome.updated) state.SkipWithError("the step updated nothing");
    return outcome.loss;
  };
  step();  // memory is taken, threads are started
  process.device->reset_peak();

  std::vector<double> seconds;
  std::vector<double> processor;
  BestTime peak;
  double peak_operations = 0;
  double loss = 0;
  for (auto _ : state) {
    peak.measure([&] { peak_operations = multiply_add_in_registers<float>(threads); });
    BestTime time;
    const double before = processor_seconds();
    time.measure([&] { loss = step(); });
    processor.push_back(processor_seconds() - before);
    seconds.push_back(time.last());
    state.SetIterationTime(time.last());
  }
  const double typical = median(seconds);
  const double rate = packs * pack_operations(spec.shape) / typical;
  state.counters["tokens/s"] = packs * 2048 / typical;
  state.counters["step_s"] = typical;
  state.counters["best_step_s"] = *std::min_element(seconds.begin(), seconds.end());
  state.counters["processor_s"] = median(processor);
  state.counters["gflops"] = rate * 1e-9;
  state.counters["peak_gflops"] = peak_operations / peak.best() * 1e-9;
  state.counters["share_of_peak"] = rate / (peak_operations / peak.best());
  state.counters["peak_MiB"] = static_cast<double>(process.device->memory().peak) / (1 << 20);
  state.counters["loss"] = loss;
}

BENCHMARK(training_step)
    ->ArgNames({"threads", "packs"})
    ->ArgsProduct({{1, 2}, {1, 4}})
    ->UseManualTime()
    ->Iterations(5)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace hydraulis
