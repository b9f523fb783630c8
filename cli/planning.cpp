#include "cli/planning.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "costmodel/device_power.h"
#include "planner/plan_check.h"

namespace hydraulis {

MegatronRun apply_megatron(const CLI::App& command, CommonOptions& options) {
  MegatronRun run = read_megatron_run(options.megatron, load_cluster(options.cluster));
  options.model = run.model;
  if (command.count("--context") == 0) options.context = run.context;
  if (command.count("--tokens-per-batch") == 0 && command.count("--sequences-per-batch") == 0) {
    options.tokens_per_batch = run.tokens_per_batch;
  }
  if (command.count("--max-tokens") == 0) {
    options.max_tokens = static_cast<std::uint64_t>(run.max_tokens);
  }
  if (command.count("--schedule") == 0) options.schedule = to_string(run.schedule);
  return run;
}

PlanRequest plan_request(const CLI::App& command, const CommonOptions& options) {
  PlanRequest request;
  request.model = options.model;
  request.cluster = options.cluster;
  request.profile = options.profile;
  if (command.count("--memory-model") > 0) request.memory_model = options.memory_model;
  request.schemes = parse_scheme_space(options.schemes, "--schemes");
  request.context = options.context;
  request.tokens_per_batch =
      options.sequences_per_batch > 0 ? 0 : sampler_options(options).tokens_per_batch;
  request.max_tokens = static_cast<std::int64_t>(options.max_tokens);
  request.traffic_overlaps = options.overlap;
  return request;
}

PlanResult load_plan(const CLI::App& command, const std::string& path, CommonOptions& options) {
  const auto given = [&command](const char* name) {
    const CLI::Option* option = command.get_option_no_throw(name);
    return option != nullptr && option->count() > 0;
  };
  PlanResult result;
  result.plan = plan_from_json(read_json_file(path), path);
  result.model = cost_model_of(result.plan, path);
  result.notes = provenance(result.model);
  note_extrapolation(result);
  const PlanCheck check = check_plan(result.plan, result.model);
  if (!given("--context")) options.context = result.plan.context;
  if (!given("--tokens-per-batch") && !given("--sequences-per-batch")) {
    options.tokens_per_batch = result.plan.tokens_per_batch;
  }
  if (!given("--max-tokens") && check.max_tokens > 0) {
    options.max_tokens = static_cast<std::uint64_t>(check.max_tokens);
    result.notes.push_back(
        fmt::format("{}: made with --max-tokens {}, which holds here too", path, check.max_tokens));
  }
  if (!given("--schedule")) options.schedule = to_string(result.plan.schedule);
  for (const std::string& line : check.disagreements) {
    result.notes.push_back(fmt::format("{}: {}", path, line));
  }
  return result;
}

void defaults_from_plan(CLI::App& command, bool required) {
  const std::string plans = required ? "the plan's" : "the plan's, or ";
  for (const auto& [name, text] :
       {std::pair{"--context",
                  "longest sequence trained, in tokens [" + plans + (required ? "]" : "32768]")},
        {"--tokens-per-batch", "tokens of a global batch [" + plans + (required ? "]" : "200000]")},
        {"--max-tokens", std::string("cap on the tokens of a micro-batch [the plan's, or what "
                                     "memory holds]")}}) {
    if (CLI::Option* option = command.get_option_no_throw(name)) option->description(text);
  }
}

SystemChoice system_choice(const CLI::App& command, bool from_plan) {
  const CLI::Option* megatron = command.get_option_no_throw("--megatron");
  const bool named = command.count("--model") > 0 || (megatron != nullptr && megatron->count() > 0);
  return {!from_plan && !named, !from_plan && command.count("--cluster") == 0};
}

PlanResult plan_for_run(const CLI::App& command, const std::string& plan_path,
                        CommonOptions& options, const LengthTrace& trace) {
  if (plan_path.empty() && !options.megatron.empty()) {
    const MegatronRun run = apply_megatron(command, options);
    PlanRequest request = plan_request(command, options);
    request.strategies = run.strategies;
    PlanResult result = make_plan(request, &trace);
    result.notes.insert(result.notes.end(), run.notes.begin(), run.notes.end());
    return result;
  }
  if (plan_path.empty()) return make_plan(plan_request(command, options), &trace);
  for (const char* name :
       {"--model", "--megatron", "--cluster", "--profile", "--memory-model", "--schemes"}) {
    const CLI::Option* option = command.get_option_no_throw(name);
    if (option != nullptr && option->count() > 0) {
      throw InputError("{}: the plan {} already names it; make another plan, or leave it out", name,
                       plan_path);
    }
  }
  return load_plan(command, plan_path, options);
}

BatchRun batch_run(const CommonOptions& options, const LengthTrace& trace) {
  return {trace, sampler_options(options), options.iterations};
}

PolicySetup policy_setup(const PlanResult& result, const CommonOptions& options,
                         const BatchSurvey& survey) {
  PolicySetup setup;
  setup.model = result.model;
  setup.set = result.plan.set;
  setup.context = static_cast<std::int64_t>(options.context);
  setup.assignment.max_tokens = static_cast<std::int64_t>(options.max_tokens);
  setup.assignment.count_parameter_traffic = !options.no_communication;
  setup.assignment.traffic_overlaps = options.overlap;
  setup.switch_seconds = options.switch_seconds;
  setup.batches = survey.tuning;
  return setup;
}

void use_schedule(const CommonOptions& options, IterationOptions& iteration) {
  iteration.overlap = options.overlap ? Overlap::on : Overlap::off;
  if (options.schedule.empty()) return;
  iteration.lowering = parse_schedule(options.schedule, "--schedule");
  iteration.order_for_schedule = iteration.lowering.schedule != Schedule::one_f_one_b;
}

DeviceRates device_rates(const CommonOptions& options, const ClusterSpec& cluster) {
  return {cluster.devices(),
          options.watts_per_device > 0 ? options.watts_per_device
                                       : data_sheet_watts(cluster.device.name),
          options.price_per_device_hour};
}

Notes run_notes(const PlanResult& result, const SystemChoice& choice, const CommonOptions& options,
                const BatchSurvey& survey, const CostingOptions& costing) {
  Notes notes = provenance_notes(result, choice, &costing);
  notes.verbose = options.verbose;
  const std::string& device = result.model.cluster.device.name;
  if (options.watts_per_device > 0) {
    notes.sources.push_back({"power", SourceKind::stated, "--watts-per-device"});
  } else if (data_sheet_watts(device) > 0) {
    notes.sources.push_back({"power", SourceKind::data_sheet,
                             fmt::format("{:g} W, the most that a board of {} draws",
                                         data_sheet_watts(device), device)});
  }
  if (options.price_per_device_hour > 0) {
    notes.sources.push_back({"price", SourceKind::stated, "--price-per-device-hour"});
  }
  notes.brief.push_back(fmt::format("{} sequences over the context of {} tokens, {} tokens removed",
                                    survey.over_context.sequences, options.context,
                                    survey.over_context.tokens_removed));
  if (!options.schedule.empty() && options.schedule != to_string(ScheduleChoice{})) {
    notes.brief.push_back(fmt::format(
        "schedule {}: micro-batches in the order found for it; strategies and packing are those "
        "chosen for 1f1b",
        options.schedule));
  }
  if (survey.over_budget > 0) {
    notes.brief.push_back(fmt::format(
        "{} of {} batches hold one sequence that is longer than the budget of {} tokens",
        survey.over_budget, options.iterations, sampler_options(options).tokens_per_batch));
  }
  return notes;
}

}  // namespace hydraulis
