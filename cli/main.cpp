// The `hydraulis` command: reads the command line, runs one subcommand and turns every failure into
// one line on standard error and an exit code. Nothing is computed here.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/usage.h"
#include "runtime/agreement.h"

namespace hydraulis {
namespace {

int report_error(ExitCode code, std::string message) {
  // One line whatever a file name or a library's message holds.
  std::replace_if(
      message.begin(), message.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  std::fprintf(stderr, "hydraulis: error: %s\n", message.c_str());
  return static_cast<int>(code);
}

/// With a standard descriptor closed, the next file opened would take its number and receive what
/// is printed. Standard output is held by a descriptor that cannot be written, so that it shows.
void hold_standard_descriptors() {
  constexpr int kModes[] = {O_RDONLY, O_RDONLY, O_WRONLY};
  for (int fd = 0; fd < 3; ++fd) {
    if (::fcntl(fd, F_GETFD) == -1 && ::open("/dev/null", kModes[fd]) != fd) std::_Exit(1);
  }
}

void run(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    std::ostringstream out;
    std::ostringstream unused;
    app.exit(wanted, out, unused);
    write_stdout(out.str());
  } catch (const CLI::ParseError& error) {
    throw InputError(usage_message(app, {argv + std::min(argc, 1), argv + argc}, error));
  }
  flush_stdout();
}

int main_function(int argc, char** argv) {
  hold_standard_descriptors();
  std::signal(SIGPIPE, SIG_IGN);  // a reader that left shows as EPIPE, and files are cleaned up
  try {
    CLI::App app("Plans and simulates large-model training under varying sequence lengths.",
                 "hydraulis");
    app.set_version_flag("--version", HYDRAULIS_VERSION);
    app.set_help_flag("-h,--help", "print this help");
    app.require_subcommand(1);
    app.get_formatter()->column_width(34);
    app.footer(
        "Exit codes: 0 done, 1 internal fault, 2 bad usage or input, 3 infeasible.\n"
        "Example:\n  hydraulis trace show web-gpt2");
    add_trace_commands(app);
    add_plan_command(app);
    add_assign_command(app);
    add_simulate_command(app);
    add_replay_command(app);
    add_compare_command(app);
    add_goodput_command(app);
    add_sweep_command(app);
    add_tune_command(app);
    add_profile_commands(app);
    add_cluster_commands(app);
    add_train_command(app);
    add_checkpoint_commands(app);
    add_diff_command(app);
    add_validate_command(app);
    add_report_command(app);
    run(app, argc, argv);
  } catch (const OutputClosed&) {
    return static_cast<int>(ExitCode::done);
  } catch (const AgreedError& error) {
    if (!error.tells()) return static_cast<int>(error.code());
    return report_error(error.code(), error.what());
  } catch (const Error& error) {
    return report_error(error.code(), error.what());
  } catch (const std::system_error& error) {  // fmt::print reports a failed write so
    if (error.code() == std::errc::broken_pipe) return static_cast<int>(ExitCode::done);
    return report_error(ExitCode::internal, error.what());
  } catch (const std::bad_alloc&) {
    return report_error(ExitCode::internal, "out of memory");
  } catch (const std::exception& error) {
    return report_error(ExitCode::internal, std::string("internal fault: ") + error.what());
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace
}  // namespace hydraulis

int main(int argc, char** argv) { return hydraulis::main_function(argc, argv); }
