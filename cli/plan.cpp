// `hydraulis plan`.
#include <CLI/CLI.hpp>
#include <memory>

#include "base/atomic_file.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planning.h"
#include "costmodel/host_states.h"
#include "planner/plan_build.h"
#include "report/plan_report.h"
#include "traces/length_trace.h"

namespace hydraulis {

void add_plan_command(CLI::App& app) {
  struct Options {
    CommonOptions common;
    std::string strategies;
    std::string optimizer_layout;
    std::string optimizer_states = "device";
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("plan", "propose the strategy set");
  add_common_options(*command, options->common,
                     Has::system | Has::trace | Has::batch | Has::context | Has::max_tokens |
                         Has::schedule | Has::overlap | Has::format | Has::output | Has::verbose |
                         Has::megatron);
  command->get_option("--trace")->required(false);
  command
      ->add_option("--strategies", options->strategies,
                   "strategies by hand, separated by ';': \"4x(1,16,1); (1,16,1)+6x(1,8,1)\"")
      ->check(not_empty())
      ->excludes("--megatron");
  command->add_option("--optimizer-layout", options->optimizer_layout,
                      "dp,tp,pp of the fixed layout of optimizer states [found]");
  command
      ->add_option("--optimizer-states", options->optimizer_states,
                   "where optimizer states live: device, or host, which leaves the devices' memory "
                   "to training (the cluster describes its host)")
      ->check(CLI::IsMember({"device", "host"}))
      ->capture_default_str();
  command->footer(
      "Example:\n  hydraulis plan --model llama-32b --cluster a800-64 --trace web-gpt2 "
      "--over-context truncate -o plan.json\n"
      "  hydraulis plan --megatron pretrain.sh --cluster h100-64 -o plan.json");
  command->callback([options, command] {
    CommonOptions& common = options->common;
    refuse_same_file({{"-o", common.output}}, {{"--trace", common.trace},
                                               {"--model", common.model},
                                               {"--megatron", common.megatron},
                                               {"--cluster", common.cluster},
                                               {"--profile", common.profile}});
    std::vector<std::string> read;
    if (!common.megatron.empty()) {
      const MegatronRun run = apply_megatron(*command, common);
      options->strategies = run.strategies;
      read = run.notes;
    }
    PlanRequest request = plan_request(*command, common);
    request.strategies = options->strategies;
    request.optimizer_layout = options->optimizer_layout;
    request.optimizer_states =
        parse_optimizer_states(options->optimizer_states, "--optimizer-states");
    LengthTrace trace;
    if (!common.trace.empty()) {
      trace = load_trace(common.trace, common.trace_format);
      // The policy for sequences over the context is the sampler's; asking it once applies the
      // checks.
      Sampler(trace, sampler_options(common));
    }
    PlanResult result = make_plan(request, common.trace.empty() ? nullptr : &trace);
    result.notes.insert(result.notes.end(), read.begin(), read.end());
    if (!common.schedule.empty()) {
      result.plan.schedule = parse_schedule(common.schedule, "--schedule");
    }
    if (!common.output.empty()) {
      write_text_file(common.output, to_text(to_json(result.plan, common.reproducible)));
    }
    Notes notes = provenance_notes(result, system_choice(*command, false));
    notes.verbose = common.verbose;
    emit(common, plan_report(result, notes, common.reproducible), false);
  });
}

}  // namespace hydraulis
