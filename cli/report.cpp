// `hydraulis report`.
#include <CLI/CLI.hpp>
#include <memory>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "report/html_report.h"

namespace hydraulis {
namespace {

struct Options {
  std::string file;
  std::string output;
  std::string title;
};

void run(const Options& options) {
  refuse_same_file({{"-o", options.output}}, {{"RESULTS", options.file}});
  const Results results = options.file.ends_with(".json")
                              ? results_from_json(read_json_file(options.file), options.file)
                              : read_results(options.file);
  HtmlContext context;
  context.title = options.title.empty() ? results.name : options.title;
  write_html_report(results, context, options.output);
}

}  // namespace

void add_report_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("report", "results as one HTML page with charts");
  command
      ->add_option("RESULTS", options->file,
                   "results of compare --results or sweep (.h5), or what they print with --json")
      ->required()
      ->check(not_empty());
  command->add_option("-o,--output", options->output, "page to write, whole or not at all")
      ->required()
      ->check(not_empty());
  command->add_option("--title", options->title, "of the page [the results' name]")
      ->check(not_empty());
  command->footer(
      "The page holds everything it needs and loads nothing; open it in any browser.\n"
      "Example:\n  hydraulis compare --trace web-gpt2 --over-context truncate --results r.h5\n"
      "  hydraulis report r.h5 -o report.html");
  command->callback([options] { run(*options); });
}

}  // namespace hydraulis
