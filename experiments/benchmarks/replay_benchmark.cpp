// Events per second of replaying lowered programs on one core, beside what the bare engine does
// with as many events pending (counter share_of_engine). "whole" includes building the graph and
// the accounts of time and memory, which is what an iteration of `simulate` pays.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <ctime>

#include "base/random.h"
#include "planner/program/lower.h"
#include "sim/engine.h"
#include "sim/replay.h"

namespace {

using namespace hydraulis;

/// Pipelines of (1,8,8) on nodes of 8 devices, each with `micro_batches` micro-batches.
Program make_program(int pipelines, int micro_batches) {
  CostModel model;
  model.model = load_model("llama-32b");
  model.cluster.nodes = 8 * pipelines;
  model.cluster.devices_per_node = 8;
  model.optimizer = {pipelines, 8, 8};
  BatchPlan plan;
  for (int p = 0; p < pipelines; ++p) {
    PipelinePlan& pipeline = plan.pipelines.emplace_back();
    pipeline.scheme.tp = 8;
    pipeline.scheme.pp = 8;
    for (int m = 0; m < micro_batches; ++m) {
      pipeline.micro_batches.push_back({{static_cast<std::uint64_t>(m)}, {4096}, 0});
    }
  }
  return lower(plan, model);
}

/// Unequal times, so that events do not come in convenient groups.
Durations draw_durations(const Program& program) {
  Random random(1);
  Durations durations;
  for (const Stage& stage : program.stages) {
    auto& seconds = durations.seconds.emplace_back();
    for (const Instruction& instruction : stage.instructions) {
      const bool computes = instruction.stream == StreamKind::compute;
      seconds.push_back((computes ? 1e-1 : 1e-3) * (0.25 + 1.5 * random.uniform()));
    }
  }
  return durations;
}

/// Processor time, as Google Benchmark's items_per_second has it: other programs do not count.
double processor_seconds() {
  return static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC);
}

double engine_events_per_second(std::uint32_t pending) {
  constexpr std::uint64_t kEvents = 3'000'000;
  Random random(1);
  Engine engine;
  std::uint64_t left = kEvents;
  for (std::uint32_t i = 0; i < pending; ++i) engine.schedule_at(random.uniform(), i);
  const double begin = processor_seconds();
  engine.run([&](std::uint32_t payload) {
    if (left-- > pending) engine.schedule_after(random.uniform(), payload);
  });
  const double taken = processor_seconds() - begin;
  return static_cast<double>(engine.events()) / taken;
}

void replay_whole(benchmark::State& state) {
  const Program program =
      make_program(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  const Durations durations = draw_durations(program);
  // About one computation and one transfer are under way on every stage.
  const double ceiling =
      engine_events_per_second(static_cast<std::uint32_t>(2 * program.stages.size()));
  std::uint64_t events = 0;
  const double begin = processor_seconds();
  for (auto _ : state) {
    const Replay result = replay(program, durations);
    benchmark::DoNotOptimize(result.makespan_seconds);
    events += result.events;
  }
  const double taken = processor_seconds() - begin;
  state.SetItemsProcessed(static_cast<std::int64_t>(events));
  state.counters["events_per_run"] =
      static_cast<double>(events) / static_cast<double>(state.iterations());
  state.counters["engine_events_per_second"] = ceiling;
  state.counters["share_of_engine"] = static_cast<double>(events) / taken / ceiling;
  state.SetLabel("pipelines of 8 stages x micro-batches");
}

BENCHMARK(replay_whole)
    ->ArgNames({"pipelines", "micro_batches"})
    ->Args({1, 64})
    ->Args({8, 64})
    ->Args({32, 128})
    ->Unit(benchmark::kMillisecond);

}  // namespace
