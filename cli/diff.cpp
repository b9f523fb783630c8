// `hydraulis diff`.
#include "report/diff.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "report/refit.h"

namespace hydraulis {
namespace {

struct Options {
  CommonOptions common;
  std::string predicted;
  std::string measured;
  DiffOptions diff;
  std::string profile;
  std::string refit;
};

void run(const Options& options) {
  refuse_same_file({{"-o", options.common.output}, {"--refit", options.refit}},
                   {{"PREDICTED", options.predicted},
                    {"MEASURED", options.measured},
                    {"--profile", options.profile}});
  const Timeline predicted = read_timeline_hdf5(options.predicted);
  const Timeline measured = read_timeline_hdf5(options.measured);
  const TimelineDifference difference = diff(predicted, measured, options.diff);
  Report report = diff_report(difference);
  if (!options.refit.empty()) {
    OperatorProfile profile = read_operator_profile(options.profile);
    const std::vector<Correction> found = corrections(predicted, measured, options.diff);
    add_corrections(profile, found);
    write_operator_profile(profile, options.refit);
    add_refit(report, found);
  }
  emit(options.common, report);
}

}  // namespace

void add_diff_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("diff", "predicted against measured timeline, instruction by instruction");
  command->add_option("PREDICTED", options->predicted, "timeline (.h5), as `simulate` writes it")
      ->required()
      ->check(not_empty());
  command->add_option("MEASURED", options->measured, "timeline (.h5), as `train` writes it")
      ->required()
      ->check(not_empty());
  command
      ->add_option("--offset", options->diff.offset,
                   "predicted iteration i is laid beside measured iteration i + offset")
      ->check(CLI::Range(-10'000'000, 10'000'000))
      ->capture_default_str();
  command
      ->add_option("--skip", options->diff.skip,
                   "leave out so many iterations at the start: warm-up")
      ->check(CLI::Range(0, 10'000'000))
      ->capture_default_str();
  CLI::Option* profile = command->add_option(
      "--profile", options->profile, "profile of operators that the prediction was made with");
  command
      ->add_option("--refit", options->refit,
                   "write that profile corrected: times multiplied by measured over predicted")
      ->needs(profile);
  add_common_options(*command, options->common, Has::format | Has::output);
  command->footer(
      "Example:\n  hydraulis diff predicted.h5 run/timeline.h5 --skip 1 --profile machine.h5 "
      "--refit corrected.h5");
  command->callback([options] { run(*options); });
}

}  // namespace hydraulis
