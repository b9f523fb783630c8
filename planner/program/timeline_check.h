#pragma once

#include <cstdint>
#include <vector>

#include "planner/program/timeline.h"

namespace hydraulis::detail {

/// Times of a timeline fit whole nanoseconds in 64 bits.
inline constexpr double kLongestSeconds = 9e9;

/// Nearest whole nanosecond; rounding is monotone, so disjoint slices stay disjoint.
std::int64_t nanoseconds(double seconds);

/// Refuses (InputError) events outside the timeline's tracks, with times that are not finite, run
/// backwards or overlap on one stream of one stage. Returns the order of events by stage, stream
/// and start, or nothing when the events already stand in order on every stream.
std::vector<std::uint32_t> check_and_order(const Timeline& timeline);

}  // namespace hydraulis::detail
