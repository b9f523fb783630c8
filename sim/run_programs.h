#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "costmodel/cost_model.h"
#include "planner/program/program.h"
#include "planner/program/timeline.h"
#include "planner/strategy.h"
#include "sim/iterations.h"

namespace hydraulis {

/// One iteration of a run as it was trained.
struct StepProgram {
  int step = 0;  ///< the number that ends the file's name, or its place in the folder
  std::string file;
  Program program;
};

/// A program file (docs/formats.md, "Program"), or every .json file of a folder by step. Throws
/// InputError, also for a folder without any.
std::vector<StepProgram> read_programs(const std::filesystem::path& path);

/// Throws InputError naming the first file whose program is for other devices than the cluster's.
void expect_cluster(const std::vector<StepProgram>& programs, const ClusterSpec& cluster);

/// Programs in virtual time, one after the other.
struct ProgramRun {
  RunResult result;                  ///< by program; strategies as in the list below
  std::vector<Strategy> strategies;  ///< in the order in which they came
  Timeline timeline;                 ///< iterations numbered by step
};

/// Checks the programs against the cost model (verify(), same layers and devices) and simulates
/// them. Throws InputError naming the file.
ProgramRun simulate_programs(const std::vector<StepProgram>& programs, const CostModel& model,
                             const IterationOptions& options = {});

}  // namespace hydraulis
