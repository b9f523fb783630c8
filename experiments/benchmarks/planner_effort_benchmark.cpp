// What the planner's own constants buy: makespans and processor time of assigning the case study's
// batches (32B on 64 A800, 200,000 tokens, 32K context) with one constant changed at a time: over
// the seven published strategies, and over the five that `plan` proposes for CommonCrawl-like
// lengths, which take longer. The defaults are those of AssignmentOptions.
//   bench_planner_effort --benchmark_counters_tabular=true
// ms_a_batch is processor time, bounds included. above_bound_percent: mean of makespan ÷ lower
// bound of the set − 1, the bound being the one proved with the defaults, so that it is the same in
// every row; worst_percent: the worst batch; slowest_ms: processor time of the slowest batch. The
// table of experiments/tune/README.md comes from here.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "costmodel/build_cost_model.h"
#include "planner/assignment.h"
#include "planner/policy.h"
#include "planner/thin_set.h"
#include "traces/sampler.h"

namespace hydraulis {
namespace {

constexpr int kBatches = 40;  ///< of each trace

struct Case {
  CostModel model;
  StrategySet set;
  std::vector<std::vector<Sequence>> batches;
  std::vector<double> bounds;  ///< seconds, by batch
};

constexpr const char* kPublished =
    "4x(1,16,1); (1,16,1)+2x(1,8,3); (1,16,1)+6x(1,8,1); (1,16,1)+12x(1,4,1); (1,8,3)+10x(1,4,1); "
    "(1,8,1)+14x(1,4,1); 8x(1,4,2)";
constexpr const char* kProposed =
    "4x(1,16,1); 8x(1,4,2); 2x(1,8,1)+6x(1,4,2); 4x(1,8,1)+4x(1,4,2); (1,16,1)+6x(1,8,1)";

Case make_case(const char* strategies) {
  Case made;
  made.model = make_cost_model(load_model("llama-32b"), load_cluster("a800-64"),
                               load_profile("a800-llama-32b"), MemoryModel::published, {4, 16, 1});
  made.set = {parse_strategies(strategies, "case study"), {4, 16, 1}};
  SamplerOptions options;
  options.tokens_per_batch = 200'000;
  options.context = 32'768;
  options.over_context = OverContext::truncate;
  options.seed = 100;  // not the batches of bench_assignment
  for (const char* name : {"web-gpt2", "commoncrawl"}) {
    const LengthTrace trace = load_trace(name);
    Sampler sampler(trace, options);
    for (int i = 0; i < kBatches; ++i) made.batches.push_back(sequences_of(sampler.next()));
  }
  const PreparedStrategies prepared = prepare(made.set, made.model);
  for (const auto& batch : made.batches) {
    made.bounds.push_back(assign(batch, prepared).set_lower_bound_seconds);
  }
  return made;
}

const Case& the_case(bool published) {
  static const Case cases[] = {make_case(kProposed), make_case(kPublished)};
  return cases[published ? 1 : 0];
}

void assign_with(benchmark::State& state, const AssignmentOptions& options, bool published) {
  const Case& batches = the_case(published);
  const PreparedStrategies prepared = prepare(batches.set, batches.model, options);
  double sum = 0;
  double worst = 0;
  double seconds = 0;
  double slowest_seconds = 0;
  for (auto _ : state) {
    for (std::size_t b = 0; b < batches.batches.size(); ++b) {
      const std::clock_t start = std::clock();
      const BatchPlan plan = assign(batches.batches[b], prepared);
      const auto ticks = static_cast<double>(std::clock() - start);
      seconds += ticks / CLOCKS_PER_SEC;
      slowest_seconds = std::max(slowest_seconds, ticks / CLOCKS_PER_SEC);
      const double above = 100 * (plan.makespan_seconds / batches.bounds[b] - 1);
      sum += above;
      worst = std::max(worst, above);
    }
  }
  const auto count = static_cast<double>(batches.batches.size());
  state.counters["above_bound_percent"] = sum / count;
  state.counters["worst_percent"] = worst;
  state.counters["slowest_ms"] = 1000 * slowest_seconds;
  state.counters["ms_a_batch"] = 1000 * seconds / count;
}

void add(const std::string& name, const std::function<void(AssignmentOptions&)>& change) {
  AssignmentOptions options;
  change(options);
  for (const bool published : {true, false}) {
    benchmark::RegisterBenchmark(((published ? "published/" : "proposed/") + name).c_str(),
                                 assign_with, options, published)
        ->Iterations(1)
        ->Unit(benchmark::kMillisecond);
  }
}

const bool kRegistered = [] {
  add("defaults", [](AssignmentOptions&) {});
  add("without_local_search", [](AssignmentOptions& o) { o = without_local_search(o); });
  for (const std::int64_t v : {0, 25'000, 100'000, 1'600'000}) {
    add("dispatch.evaluations/" + std::to_string(v),
        [v](AssignmentOptions& o) { o.dispatch.evaluations = v; });
  }
  for (const int v : {0, 2, 12, 24}) {
    add("dispatch.restarts/" + std::to_string(v),
        [v](AssignmentOptions& o) { o.dispatch.restarts = v; });
  }
  for (const double v : {1.0, 1.005, 1.01}) {
    add("dispatch.good_enough/" + std::to_string(v),
        [v](AssignmentOptions& o) { o.dispatch.good_enough = v; });
  }
  for (const int v : {1, 2, 6}) {
    add("rounds/" + std::to_string(v), [v](AssignmentOptions& o) { o.rounds = v; });
  }
  for (const int v : {0, 12, 192}) {
    add("repacks/" + std::to_string(v), [v](AssignmentOptions& o) { o.repacks = v; });
  }
  for (const int v : {4, 10, 40}) {
    add("packing.bin_counts/" + std::to_string(v),
        [v](AssignmentOptions& o) { o.packing.bin_counts = v; });
  }
  for (const int v : {12, 240}) {
    add("packing.order_evaluations/" + std::to_string(v),
        [v](AssignmentOptions& o) { o.packing.order_evaluations = v; });
  }
  for (const int v : {0, 150, 2400}) {
    add("packing.polish_evaluations/" + std::to_string(v),
        [v](AssignmentOptions& o) { o.packing.polish_evaluations = v; });
  }
  return true;
}();

}  // namespace
}  // namespace hydraulis
