// Planning one batch of the case study (32B on 64 A800, 200,000 tokens, 32K context, the seven
// published strategies) on one core:
//   bench_assignment --benchmark_counters_tabular=true
// Time is per batch, over 100 batches. gap_*_percent: makespan ÷ lower bound of the chosen strategy
// − 1; pipelined_over_5_percent: batches with a gap above 5 % whose strategy has pipelines of
// several stages, of over_5_percent in all; worst_strategy: index of the strategy of the worst gap;
// slowest_ms: processor time of the slowest batch.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "costmodel/build_cost_model.h"
#include "planner/assignment.h"
#include "planner/policy.h"
#include "traces/sampler.h"

namespace hydraulis {
namespace {

constexpr int kBatches = 100;

void assign_case(benchmark::State& state, const char* trace_name) {
  const CostModel model =
      make_cost_model(load_model("llama-32b"), load_cluster("a800-64"),
                      load_profile("a800-llama-32b"), MemoryModel::published, {4, 16, 1});
  const StrategySet set{
      parse_strategies("4x(1,16,1); (1,16,1)+2x(1,8,3); (1,16,1)+6x(1,8,1); (1,16,1)+12x(1,4,1); "
                       "(1,8,3)+10x(1,4,1); (1,8,1)+14x(1,4,1); 8x(1,4,2)",
                       "case study"),
      {4, 16, 1}};
  const PreparedStrategies prepared = prepare(set, model);
  const LengthTrace trace = load_trace(trace_name);
  SamplerOptions options;
  options.tokens_per_batch = 200'000;
  options.context = 32'768;
  options.over_context = OverContext::truncate;
  Sampler sampler(trace, options);
  std::vector<std::vector<Sequence>> batches;
  for (int i = 0; i < kBatches; ++i) batches.push_back(sequences_of(sampler.next()));

  std::size_t next = 0;
  std::vector<double> gaps;
  int over = 0;
  int pipelined_over = 0;
  double worst = -1;
  int worst_strategy = 0;
  double slowest_seconds = 0;
  for (auto _ : state) {
    const std::clock_t start = std::clock();
    const BatchPlan plan = assign(batches[next++ % kBatches], prepared);
    const auto ticks = static_cast<double>(std::clock() - start);
    slowest_seconds = std::max(slowest_seconds, ticks / CLOCKS_PER_SEC);
    const double gap = 100 * (plan.makespan_seconds / plan.lower_bound_seconds - 1);
    gaps.push_back(gap);
    if (gap > worst) {
      worst = gap;
      worst_strategy = plan.strategy;
    }
    if (gap > 5) {
      ++over;
      const Strategy& strategy = set.strategies[static_cast<std::size_t>(plan.strategy)];
      pipelined_over += std::any_of(strategy.begin(), strategy.end(),
                                    [](const Scheme& scheme) { return scheme.pp > 1; });
    }
  }
  std::sort(gaps.begin(), gaps.end());
  state.counters["gap_median_percent"] = gaps[gaps.size() / 2];
  state.counters["gap_worst_percent"] = gaps.back();
  state.counters["over_5_percent"] = over;
  state.counters["pipelined_over_5_percent"] = pipelined_over;
  state.counters["worst_strategy"] = worst_strategy;
  state.counters["slowest_ms"] = 1000 * slowest_seconds;
}

#define ASSIGN(name, trace) \
  BENCHMARK_CAPTURE(assign_case, name, trace)->Unit(benchmark::kMillisecond)->Iterations(kBatches)

ASSIGN(web_gpt2, "web-gpt2");
ASSIGN(github_gpt2, "github-gpt2");
ASSIGN(commoncrawl, "commoncrawl");
ASSIGN(wikipedia, "wikipedia");

}  // namespace
}  // namespace hydraulis
