// `hydraulis assign`.
#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planning.h"
#include "planner/assignment.h"
#include "planner/one_batch.h"
#include "planner/schedule_plan.h"
#include "report/plan_report.h"

namespace hydraulis {

void add_assign_command(CLI::App& app) {
  struct Options {
    CommonOptions common;
    std::string plan;
    std::string lengths;
    std::string format;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "assign", "assign one batch: strategy, dispatching, packing, makespan, lower bound");
  command->add_option("--plan", options->plan, "plan file made by `hydraulis plan`")->required();
  command
      ->add_option("--lengths", options->lengths,
                   "the batch: lengths in tokens, one a line (.txt) or another format")
      ->required();
  add_file_format_option(*command, "--format", options->format);
  add_common_options(*command, options->common,
                     Has::context | Has::max_tokens | Has::format | Has::output | Has::verbose);
  defaults_from_plan(*command, true);
  command->footer("Example:\n  hydraulis assign --plan plan.json --lengths batch.txt");
  command->callback([options, command] {
    CommonOptions& common = options->common;
    refuse_same_file({{"-o", common.output}},
                     {{"--plan", options->plan}, {"--lengths", options->lengths}});
    const PlanResult result = load_plan(*command, options->plan, common);
    const OneBatch one =
        load_one_batch(options->lengths, common.context, common.over_context, options->format);
    AssignmentOptions assignment;
    assignment.max_tokens = static_cast<std::int64_t>(common.max_tokens);
    BatchPlan plan = assign(one.sequences, prepare(result.plan.set, result.model, assignment));
    put_under_schedule(plan, result.model, result.plan.schedule);
    AssignContext context;
    context.strategies = result.plan.set.strategies;
    context.notes = provenance_notes(result, {});
    context.notes.verbose = common.verbose;
    context.devices = result.model.cluster.devices();
    context.empty_sequences = one.empty;
    context.dropped_sequences = one.dropped;
    context.over_context = one.counts.sequences;
    context.tokens_removed = one.counts.tokens_removed;
    context.reproducible = common.reproducible;
    emit(common, assign_report(plan, context));
  });
}

}  // namespace hydraulis
