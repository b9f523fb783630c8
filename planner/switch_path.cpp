#include "planner/switch_path.h"

#include <algorithm>

namespace hydraulis {

std::vector<double> cost_to_go(std::span<const std::vector<double>> seconds, double switch_seconds,
                               std::size_t choices) {
  std::vector<double> to_go(choices, 0.0);
  for (auto row = seconds.rbegin(); row != seconds.rend(); ++row) {
    for (std::size_t k = 0; k < choices; ++k) to_go[k] += (*row)[k];
    // Whoever was before either stays or goes to the best of all.
    const double elsewhere = *std::ranges::min_element(to_go) + switch_seconds;
    for (double& cost : to_go) cost = std::min(cost, elsewhere);
  }
  return to_go;
}

}  // namespace hydraulis
