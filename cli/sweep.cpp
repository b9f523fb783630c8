// `hydraulis sweep`.
#include "sim/sweep.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "kernels/communicator.h"
#include "report/sweep_report.h"
#include "runtime/agreement.h"

namespace hydraulis {
namespace {

constexpr std::size_t kMostShards = 100'000;

struct Options {
  CommonOptions common;
  std::string file;
  std::string shard;
  bool fresh = false;
  bool threads_given = false;
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

/// Runs the points of a share, with a progress bar where `shows`.
SweepRun run_points(const Sweep& sweep, SweepOptions how, bool shows) {
  std::unique_ptr<Progress> progress;
  how.on_progress = [&](std::size_t points, std::size_t all) {
    if (!shows) return;
    if (!progress) progress = std::make_unique<Progress>("sweeping", all, "points");
    progress->update(points);
  };
  return run_sweep(sweep, how);
}

/// The same on all processes of a job, each its share; the first then has all points.
SweepRun run_in_job(const Sweep& sweep, SweepOptions how, const CpuProcess& process) {
  // Shares end at unlike times, and nobody is to take that for a process that hangs.
  process.world->set_timeout_seconds(std::numeric_limits<float>::max());
  how.shard = static_cast<std::size_t>(process.world->rank());
  how.shards = static_cast<std::size_t>(process.world->size());
  SweepRun done;
  together(*process.world, [&] { done = run_points(sweep, how, how.shard == 0); });
  double counts[] = {static_cast<double>(done.computed), static_cast<double>(done.resumed)};
  Backend backend;
  backend.world = process.world.get();
  sum_over_ranks(backend, counts);
  together(*process.world, [&] {
    if (how.shard != 0) return;
    how.shards = 1;
    done = run_points(sweep, how, false);
  });
  done.computed = static_cast<std::size_t>(counts[0]);
  done.resumed = static_cast<std::size_t>(counts[1]);
  return done;
}

void write_and_show(const Options& options, const SweepOptions& how, const SweepRun& done) {
  SweepContext context{done.computed, done.resumed, {}};
  if (options.shard.empty()) {
    write_results(done.results, options.common.output);
    std::error_code ec;
    std::filesystem::remove_all(how.parts, ec);
  } else {
    context.notes.push_back(fmt::format(
        "share {} of the points, in {}; the same command without --shard gathers all of them",
        options.shard, how.parts.string()));
  }
  emit(options.common, sweep_report(done.results, context), false);
  const auto none = [&](RunOutcome outcome) {
    return std::ranges::none_of(done.results.runs,
                                [&](const ResultRun& run) { return run.outcome == outcome; });
  };
  if (done.results.runs.empty() || !none(RunOutcome::done)) return;
  const std::string& reason = done.results.runs.front().message;
  if (none(RunOutcome::invalid)) throw InfeasibleError("no point of the sweep fits: {}", reason);
  throw InputError("no point of the sweep could be run: {}", reason);
}

void run(Options& options) {
  CommonOptions& common = options.common;
  refuse_same_file({{"-o", common.output}}, {{"SWEEP", options.file}});
  SweepOptions how;
  how.threads = static_cast<int>(common.threads);
  how.parts = common.output + ".parts";
  const auto read = [&] {
    const std::filesystem::path file = options.file;
    Sweep sweep = parse_sweep(read_json_file(file), options.file,
                              std::filesystem::absolute(file).parent_path());
    const AtomicFile writable(common.output);  // said before hours of points, not after
    std::error_code ec;
    if (options.fresh) std::filesystem::remove_all(how.parts, ec);
    return sweep;
  };
  if (!options.shard.empty()) {
    if (options.fresh) {
      throw InputError(
          "--fresh with --shard: would take from the other shares what they have done");
    }
    parse_shard(options.shard, how);
    write_and_show(options, how, run_points(read(), how, true));
    return;
  }
  const CpuProcess process = start_cpu_process();
  if (process.world->size() == 1) {
    write_and_show(options, how, run_points(read(), how, true));
    return;
  }
  if (!options.threads_given) how.threads = process.device->threads();
  try {
    Sweep sweep;
    together(*process.world, [&] { sweep = read(); });
    const SweepRun done = run_in_job(sweep, how, process);
    together(*process.world, [&] {
      if (process.world->rank() == 0) write_and_show(options, how, done);
    });
  } catch (const AgreedError&) {
    throw;
  } catch (const std::exception& error) {
    // The other processes know nothing of it and would wait.
    std::fputs(fmt::format("hydraulis: error: {}\n", error.what()).c_str(), stderr);
    process.world->abort(static_cast<int>(ExitCode::internal));
  }
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
      "Interrupted, the same command goes on where it stopped. Under mpirun or srun --mpi=pmix "
      "each\n"
      "process runs a share of the points, on machines that have the folder of OUTPUT in common, "
      "and\n"
      "the first gathers them; --shard does the same for processes that nothing else connects.\n"
      "Example:\n  mpirun -n 8 hydraulis sweep sweep.json -o results.h5");
  command->callback([options, command] {
    options->threads_given = command->count("--threads") > 0;
    run(*options);
  });
}

}  // namespace hydraulis
