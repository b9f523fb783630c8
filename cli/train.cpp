// `hydraulis train`.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/line_printer.h"
#include "cli/output.h"
#include "cli/train_output.h"
#include "runtime/agreement.h"
#include "runtime/backend/run_backend.h"
#include "runtime/dry_run.h"
#include "runtime/stop_signal.h"
#include "runtime/trainer.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kHeadingEvery = 50;  ///< steps
constexpr double kMostPrintingSeconds = 5;  ///< at the end, for a reader that is slow

struct Options {
  std::string run;
  std::string resume = "never";
  bool dry_run = false;
  bool json = false;
};

/// What a rank says goes to standard error; results to standard output, by rank 0. A launcher that
/// has been told to end closes both, which is no reason not to finish the step and save it.
void say(const std::string& text) {
  std::fputs(fmt::format("hydraulis: {}\n", text).c_str(), stderr);
}

std::string step_text(const Options& options, const StepReport& report) {
  if (options.json) return step_json(report).dump() + "\n";
  return (report.step % kHeadingEvery == 1 ? step_heading() : "") + step_line(report);
}

void train_on_ranks(const Options& options, CpuProcess& process, const RunConfig& config,
                    const RunSetup& setup, std::int64_t memory_limit) {
  process.world->set_timeout_seconds(config.timeout_seconds);
  std::optional<RunBackend> chosen;
  together(*process.world, [&] { chosen.emplace(process, config, memory_limit); });
  const Backend& backend = chosen->backend();
  catch_stop_signals(process.world->rank(), stop_grace(config, 0));
  TrainListener listener;
  LinePrinter printer(STDOUT_FILENO);
  listener.step = [&](const StepReport& report) { printer.print(step_text(options, report)); };
  listener.note = say;
  const Resume resume = options.resume == "auto" ? Resume::newest : Resume::no;
  TrainSummary summary;
  try {
    summary = train(backend, config, setup, resume, listener);
  } catch (...) {
    printer.finish(kMostPrintingSeconds);
    throw;
  }
  if (process.world->rank() != 0) return;
  printer.print(options.json ? to_json(summary).dump() + "\n" : to_text(summary));
  const std::string trouble = printer.finish(kMostPrintingSeconds);
  if (!trouble.empty()) say("standard output: " + trouble);
}

void run(const Options& options) {
  if (options.dry_run) {
    const DryRun plan = dry_run(load_run_config(options.run));
    write_stdout(options.json ? to_json(plan).dump(2) + "\n" : to_text(plan));
    return;
  }
  // Threads and memory of the process are in the file, so it is read first; that it could not be
  // is told once the ranks can agree on it.
  std::optional<Error> unreadable;
  RunConfig config;
  RunSetup setup;
  std::int64_t memory_limit = 0;
  try {
    config = load_run_config(options.run);
    check_backend(config);
    setup = load_run_setup(config);
    memory_limit = memory_limit_bytes(config, setup);
  } catch (const Error& error) {
    unreadable = error;
  }
  const bool on_cpu = !unreadable && config.device == RunDevice::cpu;
  CpuProcess process =
      on_cpu ? start_cpu_process(config.threads, memory_limit) : start_host_process(config.threads);
  try {
    together(*process.world, [&] {
      if (unreadable) throw Error(*unreadable);
    });
    train_on_ranks(options, process, config, setup, memory_limit);
  } catch (const AgreedError&) {
    throw;
  } catch (const Error& error) {
    // The other ranks know nothing of it and would wait.
    say(fmt::format("error: {}", error.what()));
    process.world->abort(static_cast<int>(error.code()));
  } catch (const CommunicationError& error) {
    say(fmt::format("error: {}", error.what()));
    process.world->abort(static_cast<int>(ExitCode::internal));
  } catch (const std::exception& error) {
    say(fmt::format("error: rank {}: {}", process.world->rank(), error.what()));
    process.world->abort(static_cast<int>(ExitCode::internal));
  }
}

}  // namespace

void add_train_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("train", "train a model for real, from a plan");
  command->add_option("RUN", options->run, "RUN.json: plan, data, optimizer, schedule")->required();
  command->add_option("--resume", options->resume, "auto: go on from the newest whole checkpoint")
      ->check(CLI::IsMember({"auto", "never"}))
      ->capture_default_str();
  command->add_flag("--dry-run", options->dry_run,
                    "show memory, steps and predicted time without training");
  command->add_flag("--json", options->json, "one JSON object a line; of --dry-run one in all");
  command->footer(
      "Ranks are started by mpirun or srun, one for each device of the plan. SIGTERM, SIGINT or\n"
      "SIGUSR1 ends the run after its step with a checkpoint. mpirun kills its ranks one second\n"
      "after it got SIGTERM, or later with --mca odls_base_sigkill_timeout SECONDS; it passes\n"
      "SIGUSR1 on and waits.\n"
      "Example:\n  mpirun -n 2 hydraulis train run.json --resume auto");
  command->callback([options] { run(*options); });
}

}  // namespace hydraulis
