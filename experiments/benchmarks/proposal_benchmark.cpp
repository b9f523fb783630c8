// Time and memory of proposing a strategy set, one core:
//   bench_proposal --benchmark_counters_tabular=true
// The counter peak_mib is the program's largest resident memory up to the end of a case.

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <string>

#include "costmodel/cost_model.h"
#include "planner/proposal.h"
#include "traces/synth.h"

namespace hydraulis {
namespace {

struct Case {
  const char* size;  ///< of the model
  OptimizerLayout optimizer;
  std::int64_t context;
  std::int64_t length_step;
  int device_step;
  std::int64_t tokens_per_batch;
};

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

ProposalProblem problem_of(const Case& what) {
  const std::string model_name = std::string("llama-") + what.size;
  const std::string cluster_name = "a800-" + std::to_string(what.optimizer.devices());
  const CostModel model{load_model(model_name),
                        load_cluster(cluster_name),
                        load_profile("a800-" + model_name),
                        MemoryModel::published,
                        what.optimizer,
                        {}};
  ProposalProblem problem;
  problem.schemes = scheme_options(model);
  problem.histogram = length_histogram(synthesize_preset("commoncrawl", 200000, 0), what.context,
                                       what.tokens_per_batch);
  problem.devices = what.optimizer.devices();
  problem.optimizer = what.optimizer;
  problem.context = what.context;
  problem.length_step = what.length_step;
  problem.device_step = what.device_step;
  return problem;
}

void propose_case(benchmark::State& state, const Case& what) {
  const ProposalProblem problem = problem_of(what);
  std::size_t strategies = 0;
  for (auto _ : state) strategies = propose_strategies(problem).set.strategies.size();
  state.counters["schemes"] = static_cast<double>(problem.schemes.size());
  state.counters["strategies"] = static_cast<double>(strategies);
  state.counters["peak_mib"] = peak_mib();
}

#define PROPOSAL(name, ...)                                \
  BENCHMARK_CAPTURE(propose_case, name, Case{__VA_ARGS__}) \
      ->Unit(benchmark::kMillisecond)                      \
      ->Iterations(1)

PROPOSAL(gpus32_7b_lengths128, "7b", {8, 4, 1}, 32896, 128, 1, 200000);
PROPOSAL(gpus64_32b_lengths128, "32b", {4, 16, 1}, 32768, 128, 1, 200000);
PROPOSAL(gpus1024_32b_lengths1024_devices4, "32b", {64, 16, 1}, 33024, 1024, 4, 3200000);
PROPOSAL(gpus1024_32b_lengths128_devices4, "32b", {64, 16, 1}, 33024, 128, 4, 3200000);
PROPOSAL(gpus1024_32b_lengths128_devices1, "32b", {64, 16, 1}, 33024, 128, 1, 3200000);

}  // namespace
}  // namespace hydraulis
