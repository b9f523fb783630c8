#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "costmodel/cluster_spec.h"
#include "planner/schedule_choice.h"

namespace hydraulis {

/// A run of Megatron-LM as its arguments describe it, in the words of plans.
struct MegatronRun {
  std::string model;                   ///< "megatron:FILE", for load_model()
  std::string strategies;              ///< "4x(1,8,2,recompute=full)": one homogeneous strategy
  std::uint64_t context = 0;           ///< --seq-length
  std::uint64_t tokens_per_batch = 0;  ///< --global-batch-size of them
  std::int64_t max_tokens = 0;         ///< --micro-batch-size of them
  ScheduleChoice schedule;
  /// What is taken otherwise than the arguments say, and those that nothing here knows.
  std::vector<std::string> notes;
};

/// Reads the arguments (read_megatron_arguments) and lays the run over the cluster: data
/// parallelism is what the cluster's devices leave. Throws InputError naming the argument when it
/// is missing, contradicts another or the cluster (sizes that do not divide, another number of
/// processes), or asks for something that is not simulated (experts, fp8, fully sharded data
/// parallelism, custom pipeline layouts, partial recomputation).
MegatronRun read_megatron_run(const std::filesystem::path& path, const ClusterSpec& cluster);

}  // namespace hydraulis
