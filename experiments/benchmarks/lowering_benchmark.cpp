// Time to lower one iteration of the 32B case study, and of a cluster of 1024 devices.

#include <benchmark/benchmark.h>

#include "planner/program/lower.h"

namespace hydraulis {
namespace {

CostModel cost_model(int nodes) {
  CostModel cost;
  cost.model = load_model("llama-32b");
  cost.cluster.nodes = nodes;
  cost.cluster.devices_per_node = 8;
  cost.optimizer = {nodes / 2, 16, 1};
  return cost;
}

void add(BatchPlan& plan, int count, int tp, int pp, int micro_batches) {
  for (int i = 0; i < count; ++i) {
    PipelinePlan pipeline;
    pipeline.scheme.tp = tp;
    pipeline.scheme.pp = pp;
    for (int m = 0; m < micro_batches; ++m) {
      const auto id = static_cast<std::uint64_t>(plan.pipelines.size()) * 1000 + m;
      pipeline.micro_batches.push_back({{id}, {4096}, 0});
    }
    plan.pipelines.push_back(pipeline);
  }
}

void run(benchmark::State& state, const BatchPlan& plan, const CostModel& cost) {
  std::size_t instructions = 0;
  for (auto _ : state) {
    const Program program = lower(plan, cost);
    instructions = 0;
    for (const Stage& stage : program.stages) instructions += stage.instructions.size();
    benchmark::DoNotOptimize(instructions);
  }
  state.counters["instructions"] = static_cast<double>(instructions);
}

void lower_64_devices(benchmark::State& state) {
  BatchPlan plan;
  add(plan, 1, 8, 1, 4);
  add(plan, 14, 4, 1, 4);
  run(state, plan, cost_model(8));
}

void lower_1024_devices(benchmark::State& state) {
  BatchPlan plan;
  add(plan, 1, 16, 1, 8);
  add(plan, 3, 8, 1, 8);
  add(plan, 238, 4, 1, 8);
  add(plan, 2, 4, 4, 8);
  run(state, plan, cost_model(128));
}

BENCHMARK(lower_64_devices)->Unit(benchmark::kMillisecond);
BENCHMARK(lower_1024_devices)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace hydraulis
