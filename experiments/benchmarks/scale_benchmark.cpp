// One iteration of a 32B model on 8 to 16,384 devices, parameter and gradient traffic included, on
// one core: what an iteration of `simulate` costs once its batch is planned.
//   bench_scale --benchmark_counters_tabular=true
// Time is that of the whole iteration: lowering, costs, replay and the account of it. Counters
// lower_ms, cost_ms and replay_ms are its parts (processor time, measured once more one by one),
// peak_mib the program's largest resident memory up to the end of the case (--benchmark_filter for
// one case alone), makespan_ms what the simulation says.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "planner/assignment.h"
#include "planner/program/lower.h"
#include "planner/strategy.h"
#include "sim/iterations.h"
#include "traces/sampler.h"
#include "traces/synth.h"

namespace {

using namespace hydraulis;

constexpr std::uint64_t kContext = 32768;
constexpr std::uint64_t kTokensPerDevice = 1'600'000 / 1024;

/// Networks: closed form; flows over one card a device without oversubscription; four cards of the
/// same speed for eight devices; leaves of 16 nodes with half as much upwards.
enum NetworkCase { closed_form, flat, four_cards, leaves };
constexpr const char* kNetworkNames[] = {"closed form", "flat", "4 cards a node",
                                         "leaves of 16 nodes, 2:1"};

/// The published 32B mixture for 1,024 devices, repeated; fewer devices have one pipeline of tp 8
/// (64 and more: of tp 16 and three of tp 8) and the rest of tp 4.
Strategy strategy_for(int devices) {
  const int copies = std::max(1, devices / 1024);
  const int each = devices / copies;
  std::string one;
  if (each == 1024) {
    one = "1x(1,16,1)+3x(1,8,1)+238x(1,4,1)+2x(1,4,4)";
  } else if (each >= 64) {
    one = "1x(1,16,1)+3x(1,8,1)+" + std::to_string((each - 40) / 4) + "x(1,4,1)";
  } else {
    one = "1x(1,8,1)";
    if (each > 8) one += "+" + std::to_string((each - 8) / 4) + "x(1,4,1)";
  }
  const Strategy part = parse_strategies(one, "benchmark").front();
  Strategy all;
  for (int copy = 0; copy < copies; ++copy) all.insert(all.end(), part.begin(), part.end());
  return all;
}

struct Case {
  CostModel model;
  BatchPlan plan;
};

/// Planned once: the planner is measured elsewhere.
const Case& case_for(int devices) {
  static std::map<int, std::unique_ptr<Case>> known;
  std::unique_ptr<Case>& at = known[devices];
  if (at) return *at;
  at = std::make_unique<Case>();
  CostModel& model = at->model;
  model.model = load_model("llama-32b");
  model.cluster = load_cluster("a800-1024");
  model.cluster.nodes = devices / model.cluster.devices_per_node;
  model.profile = load_profile("a800-llama-32b");
  model.optimizer =
      devices % 16 == 0 ? OptimizerLayout{devices / 16, 16, 1} : OptimizerLayout{1, devices, 1};
  const StrategySet set{{strategy_for(devices)}, model.optimizer};
  std::int64_t longest = 0;
  for (const Scheme& scheme : set.strategies[0]) {
    longest = std::max(longest, max_tokens(model, scheme));
  }
  static const LengthTrace trace = synthesize_preset("commoncrawl", 2'000'000, 0);
  SamplerOptions sampling;
  sampling.tokens_per_batch = kTokensPerDevice * static_cast<std::uint64_t>(devices);
  sampling.context = std::min(kContext, static_cast<std::uint64_t>(longest));
  sampling.over_context = OverContext::truncate;
  const Batch batch = Sampler(trace, sampling).next();
  std::vector<Sequence> sequences;
  for (std::size_t i = 0; i < batch.ids.size(); ++i) {
    sequences.push_back({batch.ids[i], batch.lengths[i]});
  }
  AssignmentOptions effort;  // the plan matters little here
  effort.rounds = 1;
  effort.repacks = 0;
  at->plan = assign(sequences, prepare(set, model, effort));
  return *at;
}

CostModel on_network(CostModel model, NetworkCase network) {
  if (network == four_cards) model.cluster.network_cards_per_node = 4;
  if (network == leaves) model.cluster.levels = {{"leaf", 16, 2, 1e-6}};
  return model;
}

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

double processor_milliseconds() {
  return 1e3 * static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC);
}

void iteration(benchmark::State& state) {
  const auto network = static_cast<NetworkCase>(state.range(1));
  const Case& what = case_for(static_cast<int>(state.range(0)));
  const CostModel model = on_network(what.model, network);
  IterationOptions options;
  options.costing.network = network == closed_form ? NetworkUse::closed_form : NetworkUse::flows;
  std::uint64_t events = 0;
  double makespan = 0;
  for (auto _ : state) {
    const SimulatedIteration one = simulate_iteration(what.plan, model, options);
    events = one.result.events;
    makespan = one.result.time_seconds;
  }
  const double begin = processor_milliseconds();
  const Program program = lower(what.plan, model);
  const double lowered = processor_milliseconds();
  const Durations durations = instruction_durations(program, model, options.costing);
  const double costed = processor_milliseconds();
  const ReplayOptions replaying = replay_options(model, options.costing);
  benchmark::DoNotOptimize(replay(program, durations, replaying).makespan_seconds);
  const double replayed = processor_milliseconds();
  std::size_t instructions = 0;
  std::size_t micro_batches = 0;
  for (const Stage& stage : program.stages) instructions += stage.instructions.size();
  for (const PipelineProgram& pipeline : program.pipelines) {
    micro_batches += pipeline.micro_batches.size();
  }
  state.counters["stages"] = static_cast<double>(program.stages.size());
  state.counters["micro_batches"] = static_cast<double>(micro_batches);
  state.counters["instructions"] = static_cast<double>(instructions);
  state.counters["events"] = static_cast<double>(events);
  state.counters["lower_ms"] = lowered - begin;
  state.counters["cost_ms"] = costed - lowered;
  state.counters["replay_ms"] = replayed - costed;
  state.counters["replay_events_per_second"] =
      static_cast<double>(events) / ((replayed - costed) / 1e3);
  state.counters["makespan_ms"] = 1e3 * makespan;
  state.counters["peak_mib"] = peak_mib();
  state.SetLabel(kNetworkNames[network]);
}

void curve(benchmark::internal::Benchmark* benchmark) {
  for (const int devices : {8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 10240, 16384}) {
    benchmark->Args({devices, flat});
    benchmark->Args({devices, leaves});
    if (devices == 1024 || devices == 10240) {
      benchmark->Args({devices, closed_form});
      benchmark->Args({devices, four_cards});
    }
  }
}

BENCHMARK(iteration)->ArgNames({"devices", "network"})->Apply(curve)->Unit(benchmark::kMillisecond);

}  // namespace
