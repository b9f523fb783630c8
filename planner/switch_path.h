#pragma once

#include <span>
#include <vector>

namespace hydraulis {

/// What is still to come after each choice at one time: `seconds[t][k]` is what choice k takes at
/// time t (+infinity: it cannot be made), every change from one choice to another takes
/// `switch_seconds` more. The result has, for every choice, the least seconds of all times in
/// `seconds` when that choice was the one before them; zeros when there are none.
std::vector<double> cost_to_go(std::span<const std::vector<double>> seconds, double switch_seconds,
                               std::size_t choices);

}  // namespace hydraulis
