// Planning 32B on 32 (fewer do not hold it) to 4,096 A800, 1,600 tokens a device (1.6 million on
// 1,024), 32K context, on one core:
//   bench_planner_scale --benchmark_counters_tabular=true
// propose: the dynamic program at steps of 128 tokens and one device. plan: what `hydraulis plan`
// does, trying the strategies on sampled batches included. assign: one batch, mean of 20;
// slowest_ms: processor time of the slowest; gap_*_percent: makespan ÷ lower bound of the chosen
// strategy − 1.

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <vector>

#include "planner/assignment.h"
#include "planner/plan_build.h"
#include "planner/policy.h"
#include "traces/sampler.h"

namespace hydraulis {
namespace {

constexpr int kBatches = 20;
constexpr std::uint64_t kTokensPerDevice = 1600;

const LengthTrace& trace() {
  static const LengthTrace lengths = load_trace("commoncrawl");
  return lengths;
}

/// Clusters beyond the presets' 1,024 devices are made of more nodes.
ClusterSpec cluster_of(int devices) {
  ClusterSpec cluster = load_cluster(fmt::format("a800-{}", std::min(devices, 1024)));
  cluster.nodes = devices / cluster.devices_per_node;
  return cluster;
}

PlanRequest request_of(int devices) {
  PlanRequest request;
  request.model = "llama-32b";
  request.cluster = fmt::format("a800-{}", devices);
  request.context = 32'768;
  request.tokens_per_batch = kTokensPerDevice * static_cast<std::uint64_t>(devices);
  return request;
}

const PlanResult& plan_of(int devices) {
  static std::map<int, PlanResult> plans;
  const auto found = plans.find(devices);
  if (found != plans.end()) return found->second;
  return plans[devices] = make_plan(request_of(devices), load_model("llama-32b"),
                                    cluster_of(devices), load_profile("a800-llama-32b"), &trace());
}

void propose_case(benchmark::State& state) {
  const int devices = static_cast<int>(state.range(0));
  const PlanResult& plan = plan_of(devices);
  ProposalOptions options;
  options.context = 32'768;
  options.tokens_per_batch = static_cast<std::int64_t>(plan.plan.tokens_per_batch);
  std::size_t strategies = 0;
  for (auto _ : state) {
    strategies = propose(trace(), plan.model, options).set.strategies.size();
  }
  state.counters["strategies"] = static_cast<double>(strategies);
}

void plan_case(benchmark::State& state) {
  const int devices = static_cast<int>(state.range(0));
  for (auto _ : state) {
    benchmark::DoNotOptimize(make_plan(request_of(devices), load_model("llama-32b"),
                                       cluster_of(devices), load_profile("a800-llama-32b"),
                                       &trace()));
  }
}

void assign_case(benchmark::State& state) {
  const int devices = static_cast<int>(state.range(0));
  const PlanResult& plan = plan_of(devices);
  AssignmentOptions options;
  options.count_parameter_traffic = true;
  const PreparedStrategies prepared = prepare(plan.plan.set, plan.model, options);
  SamplerOptions sampling;
  sampling.tokens_per_batch = plan.plan.tokens_per_batch;
  sampling.context = plan.plan.context;
  sampling.over_context = OverContext::truncate;
  Sampler sampler(trace(), sampling);
  std::vector<std::vector<Sequence>> batches;
  for (int i = 0; i < kBatches; ++i) batches.push_back(sequences_of(sampler.next()));
  std::size_t next = 0;
  double slowest = 0;
  std::vector<double> gaps;
  for (auto _ : state) {
    const std::clock_t start = std::clock();
    const BatchPlan assigned = assign(batches[next++ % kBatches], prepared);
    slowest = std::max(slowest, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    gaps.push_back(100 * (assigned.makespan_seconds / assigned.lower_bound_seconds - 1));
  }
  std::ranges::sort(gaps);
  state.counters["strategies"] = static_cast<double>(prepared.strategies.size());
  state.counters["sequences"] = static_cast<double>(batches.front().size());
  state.counters["slowest_ms"] = 1000 * slowest;
  state.counters["gap_median_percent"] = gaps[gaps.size() / 2];
  state.counters["gap_worst_percent"] = gaps.back();
}

void devices(benchmark::internal::Benchmark* cases) {
  for (const int count : {32, 64, 256, 1024, 4096}) cases->Arg(count);
  cases->Unit(benchmark::kMillisecond);
}

BENCHMARK(propose_case)->Apply(devices)->Iterations(1);
BENCHMARK(plan_case)->Apply(devices)->Iterations(1);
BENCHMARK(assign_case)->Apply(devices)->Iterations(kBatches);

}  // namespace
}  // namespace hydraulis
