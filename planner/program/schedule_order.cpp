#include "planner/program/schedule_order.h"

#include <algorithm>

namespace hydraulis {

std::vector<ComputeStep> schedule_order(Schedule schedule, int stages, int stage,
                                        int micro_batches) {
  const int ahead =
      schedule == Schedule::gpipe ? micro_batches : std::min(stages - 1 - stage, micro_batches);
  std::vector<ComputeStep> steps;
  steps.reserve(2 * static_cast<std::size_t>(micro_batches));
  for (int i = 0; i < ahead; ++i) steps.push_back({true, i});
  for (int i = ahead; i < micro_batches; ++i) {
    steps.push_back({true, i});
    steps.push_back({false, i - ahead});
  }
  for (int i = micro_batches - ahead; i < micro_batches; ++i) steps.push_back({false, i});
  return steps;
}

}  // namespace hydraulis
