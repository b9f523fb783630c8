#include "tests/cuda_emulator/clock.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace emulator {

namespace {
std::uint32_t now = 0;
std::deque<Operation>& history() {
  static std::deque<Operation> operations(1);  // tick 0: before everything
  return operations;
}
}  // namespace

std::uint32_t tick() { return now; }
std::uint32_t next_tick() { return ++now; }

void begin_operation(Operation operation) {
  operation.first_tick = next_tick();
  history().push_back(std::move(operation));
}

void forget_operations() {
  history().clear();
  history().resize(1);
}

const Operation& running_operation() { return history().back(); }

const Operation& operation_of(std::uint32_t tick) {
  static std::size_t last = 0;  // most accesses find what the one before them found
  const auto& all = history();
  if (last >= all.size() || all[last].first_tick > tick ||
      (last + 1 < all.size() && all[last + 1].first_tick <= tick)) {
    const auto after =
        std::upper_bound(all.begin(), all.end(), tick,
                         [](std::uint32_t t, const Operation& o) { return t < o.first_tick; });
    last = static_cast<std::size_t>(after - all.begin()) - 1;
  }
  return all[last];
}

bool done_before_running(const Operation& earlier) {
  return earlier.index <= running_operation().before.at(earlier.stream);
}

}  // namespace emulator
