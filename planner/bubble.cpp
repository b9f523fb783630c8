#include "planner/bubble.h"

#include <cmath>

namespace hydraulis {
namespace {

constexpr int kFirstStages = 2;
constexpr int kLastStages = 16;
constexpr int kMostMicroBatches = 32;
constexpr double kLeast[kLastStages - kFirstStages + 1][kMostMicroBatches] = {
#include "planner/bubble_table.inc"
};

}  // namespace

double least_bubble_factor(int stages, std::int64_t micro_batches) {
  if (stages <= 1) return 1;
  if (stages <= kLastStages && micro_batches <= kMostMicroBatches) {
    return kLeast[stages - kFirstStages][micro_batches - 1];
  }
  // Micro-batches of at least θ give a makespan C of at least their sum + (p−1)·θ; sizes that
  // satisfy this for every θ sum to at most C·(1−(1−1/p)^v).
  return 1 / (1 - std::pow(1 - 1.0 / stages, static_cast<double>(micro_batches)));
}

}  // namespace hydraulis
