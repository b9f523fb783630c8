#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "sim/fair_share.h"
#include "sim/graph.h"
#include "sim/replay.h"

namespace hydraulis::detail {

/// One part of what an activity does: so many seconds at full speed, taking what its kind takes.
struct Part {
  std::uint32_t kind = 0;
  double seconds = 0;
};
/// The kind of what shares nothing with anybody.
inline constexpr std::uint32_t kAlone = std::numeric_limits<std::uint32_t>::max();

/// The resources that the activities of a program share, and what each activity takes: its parts
/// one after the other.
struct Sharing {
  std::vector<double> capacities;
  std::vector<std::uint32_t> first_use = {0};  ///< of each kind, into uses; plus the end
  std::vector<ResourceUse> uses;
  std::vector<double> limits;                   ///< of each kind: its highest rate
  std::vector<std::uint32_t> first_part = {0};  ///< of each activity, into parts; plus the end
  std::vector<Part> parts;

  std::uint32_t kinds() const { return static_cast<std::uint32_t>(first_use.size() - 1); }
  std::span<const ResourceUse> of(std::uint32_t kind) const {
    return std::span(uses).subspan(first_use[kind], first_use[kind + 1] - first_use[kind]);
  }
};

/// What a program's activities did.
struct Course {
  std::vector<Span> ran;    ///< by activity
  std::vector<char> ended;  ///< by activity
  double end_seconds = 0;
  std::uint64_t events = 0;
};

/// Every activity takes the time it has.
Course run_alone(const Graph& graph);

/// Activities slow one another down where they share resources. Those of a kind end in the order of
/// the work that they had left when they started, so only the next end of each kind is an event,
/// and what happens at one time is settled at once.
Course run_shared(const Graph& graph, const Sharing& sharing);

}  // namespace hydraulis::detail
