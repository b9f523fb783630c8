// `hydraulis sweep`.
#include "sim/sweep.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "report/sweep_report.h"

namespace hydraulis {
namespace {

constexpr std::size_t kMostShards = 100'000;

struct Options {
  CommonOptions common;
  std::string file;
  std::string shard;
  bool fresh = false;
};

/// "2/8": the third of eight shares of the points.
void parse_shard(const std::string& text, SweepOptions& how) {
  std::size_t values[2] = {};
  const char* at = text.data();
  const char* end = at + text.size();
  const auto [slash, first] = std::from_chars(at, end, values[0]);
  if (first == std::errc() && slash != end && *slash == '/') {
    const auto [stop, second] = std::from_chars(slash + 1, end, values[1]);
    if (second == std::errc() && stop == end && values[0] < values[1] && values[1] <= kMostShards) {
      how.shard = values[0];
      how.shards = values[1];
      return;
    }
  }
  throw InputError("--shard: '{}', expected I/N such as 0/4 with I from 0 below N", text);
}

void run(Options& options) {
  CommonOptions& common = options.common;
  refuse_same_file({{"-o", common.output}}, {{"SWEEP", options.file}});
  const std::filesystem::path file = options.file;
  const Sweep sweep = parse_sweep(read_json_file(file), options.file,
                                  std::filesystem::absolute(file).parent_path());
  SweepOptions how;
  how.threads = static_cast<int>(common.threads);
  how.parts = common.output + ".parts";
  if (!options.shard.empty()) parse_shard(options.shard, how);
  std::error_code ec;
  if (options.fresh) std::filesystem::remove_all(how.parts, ec);
  SweepRun done;
  {
    std::unique_ptr<Progress> progress;
    how.on_progress = [&](std::size_t points, std::size_t all) {
      if (!progress) progress = std::make_unique<Progress>("sweeping", all, "points");
      progress->update(points);
    };
    done = run_sweep(sweep, how);
  }
  SweepContext context{done.computed, done.resumed, {}};
  if (options.shard.empty()) {
    write_results(done.results, common.output);
    std::filesystem::remove_all(how.parts, ec);
  } else {
    context.notes.push_back(fmt::format(
        "share {} of the points, in {}; the same command without --shard gathers all of them",
        options.shard, how.parts.string()));
  }
  emit(common, sweep_report(done.results, context), false);
  const auto none = [&](RunOutcome outcome) {
    return std::ranges::none_of(done.results.runs,
                                [&](const ResultRun& run) { return run.outcome == outcome; });
  };
  if (done.results.runs.empty() || !none(RunOutcome::done)) return;
  const std::string& reason = done.results.runs.front().message;
  if (none(RunOutcome::invalid)) throw InfeasibleError("no point of the sweep fits: {}", reason);
  throw InputError("no point of the sweep could be run: {}", reason);
}

}  // namespace

void add_sweep_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("sweep", "what-if grids: any field of a system varied");
  command->add_option("SWEEP", options->file, "sweep file: a base and a grid (JSON)")
      ->required()
      ->check(not_empty());
  add_common_options(*command, options->common, Has::threads | Has::format | Has::output);
  command->get_option("--output")
      ->required()
      ->description("results to write (HDF5); finished points are kept in OUTPUT.parts until then");
  command
      ->add_option("--shard", options->shard,
                   "run only share I of N of the points, written to OUTPUT.parts alone: I/N")
      ->check(not_empty());
  command->add_flag("--fresh", options->fresh, "run every point, whatever OUTPUT.parts holds");
  command->footer(
      "Interrupted, the same command goes on where it stopped. On several machines that share a\n"
      "folder: mpirun ... bash -c 'hydraulis sweep SWEEP.json -o R.h5 --shard \\\n"
      "$OMPI_COMM_WORLD_RANK/$OMPI_COMM_WORLD_SIZE', then once without --shard.\n"
      "Example:\n  hydraulis sweep sweep.json -o results.h5");
  command->callback([options] { run(*options); });
}

}  // namespace hydraulis
