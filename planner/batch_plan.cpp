#include "planner/batch_plan.h"

namespace hydraulis {

std::uint64_t MicroBatch::tokens() const {
  std::uint64_t sum = 0;
  for (const std::uint32_t length : lengths) sum += length;
  return sum;
}

double MicroBatch::sum_squares() const {
  double sum = 0;
  for (const std::uint32_t length : lengths) {
    sum += static_cast<double>(length) * static_cast<double>(length);
  }
  return sum;
}

}  // namespace hydraulis
