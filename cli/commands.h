#pragma once

#include <CLI/CLI.hpp>

namespace hydraulis {

// One function a subcommand, each in the file of its name: it adds the subcommand with its options
// and help, and its callback does the work. Callbacks throw hydraulis::Error for what a person has
// to mend; main() turns that into one line and an exit code. Result tables leave through emit()
// (cli/options.h).

/// `trace import`, `trace synth`, `trace show`.
void add_trace_commands(CLI::App& app);
void add_plan_command(CLI::App& app);
void add_assign_command(CLI::App& app);
void add_simulate_command(CLI::App& app);
/// `goodput`: days of training on nodes that fail.
void add_goodput_command(CLI::App& app);
/// `replay`: programs that a training run executed.
void add_replay_command(CLI::App& app);
void add_compare_command(CLI::App& app);
/// `tune`: plans searched with the simulator.
void add_tune_command(CLI::App& app);
/// `sweep`: grids over the fields of a system.
void add_sweep_command(CLI::App& app);
/// `report`: results as an HTML page.
void add_report_command(CLI::App& app);
/// `diff`: predicted against measured timelines.
void add_diff_command(CLI::App& app);
/// `validate`: published measurements.
void add_validate_command(CLI::App& app);
/// `profile`, `profile import`, `profile show`, `profile compare`.
void add_profile_commands(CLI::App& app);
/// `cluster import`, `cluster collectives`.
void add_cluster_commands(CLI::App& app);
void add_train_command(CLI::App& app);
/// `checkpoint import-hf`, `checkpoint export-hf`, `checkpoint show`.
void add_checkpoint_commands(CLI::App& app);

}  // namespace hydraulis
