#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "costmodel/model_spec.h"
#include "costmodel/operator_profile.h"
#include "costmodel/profiler/bench.h"

namespace hydraulis {

/// What to measure, and how long.
struct ProfilerSettings {
  std::string name;             ///< of the profile
  std::string backend = "cpu";  ///< of the bench
  std::vector<ModelSpec> models;
  std::vector<int> tensor_parallel;  ///< degrees whose shapes are measured; empty: 2, 4, … ranks
  std::int64_t max_tokens = 4096;    ///< of a micro-batch
  std::int64_t max_bytes = std::int64_t{64} << 20;  ///< of a message or copy
  bool quick = false;                               ///< fewer sizes and repeats
  double most_seconds = 0;                          ///< then the rest is left out; 0: no limit
};

/// What happens meanwhile; called on rank 0 alone. Each may be empty.
struct ProfilerListener {
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
  /// Something of the profile so far is worth keeping.
  std::function<void(const OperatorProfile& so_far)> save;
};

struct ProfilerResult {
  OperatorProfile profile;
  bool data_check_failed = false;  ///< of some collective: its size is among the excluded points
};

/// Measures this job's machine: a matrix product and copies that show what is impossible, the
/// collectives of every group shape, copies between host and device, every kernel of the models.
/// All ranks call it together and measure at the same time; times are those of the slowest. What
/// `standing` (rank 0's; may be empty) holds already is kept and not measured again. The result is
/// whole on rank 0. Points that fail their data check or beat the ceilings are left out and named.
ProfilerResult profile_machine(const Bench& bench, const ProfilerSettings& settings,
                               const OperatorProfile& standing, const ProfilerListener& listener);

/// Throws InputError when `standing` cannot be gone on with: another machine, number of ranks or of
/// threads, or number format. `where` names its file.
void check_resumable(const OperatorProfile& standing, const MachineDescription& machine,
                     DataType type, const std::string& where);

}  // namespace hydraulis
