// `hydraulis validate`.
#include "report/validate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"

namespace hydraulis {
namespace {

struct Options {
  CommonOptions common;
  std::string file;
  std::string device;
  std::string fit_on;
  std::string leave_one_out;
  std::string all_reduce;
};

void run(const Options& options) {
  refuse_same_file(
      {{"-o", options.common.output}},
      {{"FILE", options.file}, {"--fit-on", options.fit_on}, {"--all-reduce", options.all_reduce}});
  const PublicRows rows = read_public_rows(options.file);
  PublicDevice device = public_device(options.device.empty() ? rows.device : options.device);
  if (!options.all_reduce.empty()) {
    device.all_reduce = read_all_reduce_table(options.all_reduce, device.devices_per_node);
  }
  std::optional<PublicRows> fit_on;
  if (!options.fit_on.empty()) fit_on = read_public_rows(options.fit_on);
  ValidateOptions how;
  how.leave_one_out = options.leave_one_out;
  how.fit_on = fit_on ? &*fit_on : nullptr;
  emit(options.common, validate_report(rows, device, validate(rows, device, how)));
}

}  // namespace

void add_validate_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "validate", "published measurements: predicted against measured, row by row");
  command->add_option("FILE", options->file, "CSV of measurements (columns: docs/formats.md)")
      ->required()
      ->check(not_empty());
  command
      ->add_option("--device", options->device,
                   fmt::format("{} [as the rows look]", fmt::join(public_device_names(), ", ")))
      ->check(not_empty());
  CLI::Option* fit_on =
      command
          ->add_option("--fit-on", options->fit_on,
                       "fit the parameters on the rows of this CSV [shipped parameters]")
          ->check(not_empty());
  command
      ->add_option("--leave-one-out", options->leave_one_out,
                   "fit without one group of rows at a time and predict it; groups by " +
                       fmt::format("{}", fmt::join(group_columns(), ", ")))
      ->check(CLI::IsMember(group_columns()))
      ->excludes(fit_on);
  command
      ->add_option("--all-reduce", options->all_reduce,
                   "measured all-reduce table of a node (CSV with size(B) and time(ns))")
      ->check(not_empty());
  add_common_options(*command, options->common, Has::format | Has::output);
  command->footer("Example:\n  hydraulis validate measured.csv --leave-one-out model");
  command->callback([options] { run(*options); });
}

}  // namespace hydraulis
