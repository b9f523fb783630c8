#include "cli/planning.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"

namespace hydraulis {

PlanRequest plan_request(const CLI::App& command, const CommonOptions& options) {
  PlanRequest request;
  request.model = options.model;
  request.cluster = options.cluster;
  request.profile = options.profile;
  if (command.count("--memory-model") > 0) request.memory_model = options.memory_model;
  request.context = options.context;
  request.tokens_per_batch =
      options.sequences_per_batch > 0 ? 0 : sampler_options(options).tokens_per_batch;
  request.max_tokens = static_cast<std::int64_t>(options.max_tokens);
  return request;
}

PlanResult load_plan(const std::string& path) {
  PlanResult result;
  result.plan = plan_from_json(read_json_file(path), path);
  result.model = cost_model_of(result.plan, path);
  result.notes = provenance(result.model);
  return result;
}

PlanResult plan_for_run(const CLI::App& command, const std::string& plan_path,
                        CommonOptions& options, const LengthTrace& trace) {
  if (plan_path.empty()) return make_plan(plan_request(command, options), &trace);
  for (const char* name : {"--model", "--cluster", "--profile", "--memory-model"}) {
    if (command.count(name) > 0) {
      throw InputError("{}: the plan {} already names it; make another plan, or leave it out", name,
                       plan_path);
    }
  }
  PlanResult result = load_plan(plan_path);
  if (command.count("--context") == 0) options.context = result.plan.context;
  if (command.count("--tokens-per-batch") == 0 && command.count("--sequences-per-batch") == 0) {
    options.tokens_per_batch = result.plan.tokens_per_batch;
  }
  return result;
}

PolicySetup policy_setup(const PlanResult& result, const CommonOptions& options,
                         std::span<const Batch> batches) {
  PolicySetup setup;
  setup.model = result.model;
  setup.set = result.plan.set;
  setup.context = static_cast<std::int64_t>(options.context);
  setup.assignment.max_tokens = static_cast<std::int64_t>(options.max_tokens);
  setup.assignment.count_parameter_traffic = !options.no_communication;
  setup.batches = batches;
  return setup;
}

std::vector<std::string> run_notes(const PlanResult& result, const CommonOptions& options,
                                   const SampledBatches& sampled, const CostingOptions& costing) {
  std::vector<std::string> notes = result.notes;
  for (const std::string& note : costing_assumptions(result.model, costing)) notes.push_back(note);
  notes.push_back(fmt::format("{} sequences over the context of {} tokens, {} tokens removed",
                              sampled.over_context.sequences, options.context,
                              sampled.over_context.tokens_removed));
  const std::uint64_t budget = sampler_options(options).tokens_per_batch;
  const auto over =
      std::count_if(sampled.batches.begin(), sampled.batches.end(),
                    [budget](const Batch& batch) { return budget > 0 && batch.tokens() > budget; });
  if (over > 0) {
    notes.push_back(fmt::format(
        "{} of {} batches hold one sequence that is longer than the budget of {} tokens", over,
        sampled.batches.size(), budget));
  }
  return notes;
}

}  // namespace hydraulis
