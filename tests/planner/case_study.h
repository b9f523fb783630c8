#pragma once

#include <string>
#include <vector>

#include "costmodel/build_cost_model.h"
#include "planner/strategy.h"
#include "traces/sampler.h"

namespace hydraulis::test {

/// The seven strategies of the published case study: 32B on 64 A800.
inline constexpr const char* kCaseStudyStrategies =
    "4x(1,16,1); (1,16,1)+2x(1,8,3); (1,16,1)+6x(1,8,1); (1,16,1)+12x(1,4,1); "
    "(1,8,3)+10x(1,4,1); (1,8,1)+14x(1,4,1); 8x(1,4,2)";

inline CostModel case_study_model() {
  return make_cost_model(load_model("llama-32b"), load_cluster("a800-64"),
                         load_profile("a800-llama-32b"), MemoryModel::published, {4, 16, 1});
}

inline StrategySet case_study_set() {
  return {parse_strategies(kCaseStudyStrategies, "case study"), {4, 16, 1}};
}

/// Batches of about 200,000 tokens, sequences over 32K truncated.
inline std::vector<Batch> case_study_batches(const std::string& trace_name, int count) {
  const LengthTrace trace = load_trace(trace_name);
  SamplerOptions options;
  options.tokens_per_batch = 200'000;
  options.context = 32'768;
  options.over_context = OverContext::truncate;
  Sampler sampler(trace, options);
  std::vector<Batch> batches;
  for (int i = 0; i < count; ++i) batches.push_back(sampler.next());
  return batches;
}

}  // namespace hydraulis::test
