#pragma once

#include <cstdint>
#include <vector>

#include "planner/program/program.h"
#include "sim/replay.h"

namespace hydraulis {

/// What an instruction keeps busy.
enum class Resource : std::uint8_t {
  compute,      ///< forwards and backwards
  pipeline,     ///< activations and gradients between stages
  parameters,   ///< parameter gather
  gradients,    ///< gradient reduction
  collectives,  ///< norm, barrier, all-to-all
  optimizer,    ///< the step
};
inline constexpr int kResources = 6;
const char* to_string(Resource resource);
Resource resource_of(Op op);

/// One resource's part in how long an iteration takes.
struct ResourceShare {
  Resource resource = Resource::compute;
  double path_seconds = 0;  ///< of the longest chain of instructions that wait for one another
  double gain_twice_as_fast = 0;  ///< share of the iteration that would be saved: replayed
  double gain_if_free = 0;        ///< the same at no time at all: what it can gain at most
};

/// Walks back from the end of a replay along what every instruction last waited for, and replays
/// the program with each resource faster. Where instructions share cores the path may have gaps;
/// else its seconds add up to the makespan.
std::vector<ResourceShare> critical_path(const Program& program, const Durations& durations,
                                         const ReplayOptions& options = {});

}  // namespace hydraulis
