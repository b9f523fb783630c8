#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/options.h"
#include "planner/plan_build.h"
#include "report/notes.h"
#include "sim/faults.h"
#include "sim/iterations.h"

namespace hydraulis {

/// What a command line says about faults.
struct FaultsOptions {
  std::string path;  ///< of a faults file; empty: none
  bool known = false;
};

/// Adds --faults and --known-stragglers to a command that simulates iterations.
CLI::Option* add_faults_options(CLI::App& command, FaultsOptions& options);

/// The file, read and checked against the cluster; without one, no faults.
Faults faults_on(const FaultsOptions& options, const ClusterSpec& cluster);

/// plan_for_run() and the faults it is run under. With known stragglers the plan is made for the
/// cluster as with_known_stragglers() has it; throws InputError when it is given already.
PlanResult plan_under_faults(const CLI::App& command, const std::string& plan_path,
                             CommonOptions& common, const LengthTrace& trace,
                             const FaultsOptions& options, Faults& faults);

/// Says in a result's notes what varied.
void note_variance(const Variance& variance, const ClusterSpec& cluster, Notes& notes);

}  // namespace hydraulis
