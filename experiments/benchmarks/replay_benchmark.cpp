// Events per second of replaying lowered programs on one core, beside what the bare engine does
// with as many events pending (counter share_of_engine). "whole" includes building the graph and
// the accounts of time and memory, which is what an iteration of `simulate` pays; "flows" the links
// as well, which all transfers of a narrow network share. settle_component is what one arrival and
// departure cost where every flow shares a full link with all others, by kinds of flows: the part
// that grows with what is shared.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <ctime>
#include <memory>
#include <vector>

#include "base/random.h"
#include "planner/program/lower.h"
#include "sim/engine.h"
#include "sim/fair_share.h"
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

void run_replay(benchmark::State& state, bool flows) {
  const Program program =
      make_program(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  const Durations durations = draw_durations(program);
  ReplayOptions options;
  if (flows) {
    ClusterSpec cluster = load_cluster("a800-1024");
    cluster.nodes = program.devices / program.devices_per_node;
    cluster.network_cards_per_node = 1;
    cluster.network_card_bytes_per_second = 1e9;
    cluster.levels = {{"leaf", 4, 2, 1e-6}};
    options.network = std::make_shared<const Topology>(make_topology(cluster));
  }
  // About one computation and one transfer are under way on every stage.
  const double ceiling =
      engine_events_per_second(static_cast<std::uint32_t>(2 * program.stages.size()));
  std::uint64_t events = 0;
  const double begin = processor_seconds();
  for (auto _ : state) {
    const Replay result = replay(program, durations, options);
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

void replay_whole(benchmark::State& state) { run_replay(state, false); }
void replay_flows(benchmark::State& state) { run_replay(state, true); }

void settle_component(benchmark::State& state) {
  const auto kinds = static_cast<std::uint32_t>(state.range(0));
  // Everybody on link 0, which is full, and each on one of its own.
  std::vector<double> capacities(1 + kinds, 2);
  capacities[0] = kinds / 4.0;
  std::vector<std::vector<ResourceUse>> uses;
  Random random(1);
  for (std::uint32_t k = 0; k < kinds; ++k) {
    uses.push_back({{0, 0.5 + random.uniform()}, {1 + k, 1}});
  }
  FairShare share(capacities, kinds);
  double rates = 0;
  const auto look = [&](std::uint32_t kind) { rates += share.rate(kind); };
  for (std::uint32_t k = 0; k < kinds; ++k) share.start(k, uses[k]);
  share.settle(look);
  std::uint32_t next = 0;
  for (auto _ : state) {
    share.end(next);
    share.settle(look);
    share.start(next, uses[next]);
    share.settle(look);
    next = (next + 1) % kinds;
  }
  benchmark::DoNotOptimize(rates);
  state.SetItemsProcessed(2 * state.iterations());
}

BENCHMARK(replay_flows)
    ->ArgNames({"pipelines", "micro_batches"})
    ->Args({1, 64})
    ->Args({8, 64})
    ->Args({32, 128})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(settle_component)->ArgName("kinds")->RangeMultiplier(4)->Range(4, 4096);
BENCHMARK(replay_whole)
    ->ArgNames({"pipelines", "micro_batches"})
    ->Args({1, 64})
    ->Args({8, 64})
    ->Args({32, 128})
    ->Unit(benchmark::kMillisecond);

}  // namespace
