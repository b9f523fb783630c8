#include "planner/switch_path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/random.h"

namespace hydraulis {
namespace {

using Rows = std::vector<std::vector<double>>;

/// Every path tried.
double least(const Rows& rows, double switch_seconds, std::size_t before, std::size_t at = 0) {
  if (at == rows.size()) return 0;
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t k = 0; k < rows[at].size(); ++k) {
    best = std::min(best, rows[at][k] + (k == before ? 0 : switch_seconds) +
                              least(rows, switch_seconds, k, at + 1));
  }
  return best;
}

TEST(SwitchPath, IsTheLeastOfAllPaths) {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    const std::size_t choices = 1 + random.below(4);
    Rows rows(random.below(6));
    for (auto& row : rows) {
      for (std::size_t k = 0; k < choices; ++k) {
        // The first can always be made.
        const bool impossible = k > 0 && random.below(5) == 0;
        row.push_back(impossible ? std::numeric_limits<double>::infinity()
                                 : static_cast<double>(random.below(20)));
      }
    }
    const double switch_seconds = static_cast<double>(random.below(12));
    const std::vector<double> to_go = cost_to_go(rows, switch_seconds, choices);
    ASSERT_EQ(to_go.size(), choices);
    for (std::size_t k = 0; k < choices; ++k) {
      EXPECT_DOUBLE_EQ(to_go[k], least(rows, switch_seconds, k)) << round;
    }
  }
}

}  // namespace
}  // namespace hydraulis
