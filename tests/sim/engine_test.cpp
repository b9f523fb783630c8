#include "sim/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/random.h"

namespace hydraulis {
namespace {

// Reference: a plain list searched for the least (time, order of pushing).
struct Reference {
  std::vector<std::tuple<double, int, std::uint32_t>> events;
  int sequence = 0;
  void push(double time, std::uint32_t payload) { events.emplace_back(time, sequence++, payload); }
  std::pair<double, std::uint32_t> pop() {
    const auto least = std::min_element(events.begin(), events.end());
    const auto [time, order, payload] = *least;
    events.erase(least);
    return {time, payload};
  }
};

void compare_with_reference(EventQueue queue, std::uint64_t seed) {
  Random random(seed);
  Reference reference;
  for (int step = 0; step < 4000; ++step) {
    ASSERT_EQ(queue.size(), reference.events.size());
    if (queue.empty() || random.below(5) < (step < 2000 ? 3U : 2U)) {
      // Few distinct times, so that ties are common.
      const double time = static_cast<double>(random.below(50)) * 0.25;
      const auto payload = static_cast<std::uint32_t>(random.next());
      queue.push(time, payload);
      reference.push(time, payload);
    } else {
      const Event event = queue.pop();
      ASSERT_EQ(std::make_pair(event.time, event.payload), reference.pop()) << "step " << step;
    }
  }
}

TEST(EventQueue, PopsByTimeThenByOrderOfPushing) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) compare_with_reference(EventQueue(), seed);
}

TEST(EventQueue, KeepsTheOrderWhenSequenceNumbersRunOut) {
  for (const std::uint32_t left : {0U, 1U, 7U, 500U, 1500U}) {
    compare_with_reference(EventQueue(std::numeric_limits<std::uint32_t>::max() - left), left);
  }
}

TEST(EventQueue, NegativeZeroIsZero) {
  EventQueue queue;
  queue.push(0.0, 1);
  queue.push(-0.0, 2);
  queue.push(std::numeric_limits<double>::denorm_min(), 3);
  EXPECT_EQ(queue.pop().payload, 1U);
  EXPECT_EQ(queue.pop().payload, 2U);
  EXPECT_EQ(queue.pop().payload, 3U);
  EXPECT_TRUE(queue.empty());
}

TEST(Engine, RunsUntilNothingIsPending) {
  Engine engine;
  engine.schedule_at(1.0, 3);
  std::vector<double> times;
  engine.run([&](std::uint32_t left) {
    times.push_back(engine.now());
    if (left > 0) engine.schedule_after(0.5, left - 1);
  });
  EXPECT_EQ(times, (std::vector<double>{1.0, 1.5, 2.0, 2.5}));
  EXPECT_EQ(engine.events(), 4U);
  EXPECT_EQ(engine.pending(), 0U);
}

TEST(Engine, RefusesTimesThatAreNotFiniteOrInThePast) {
  Engine engine;
  for (const double time : {std::nan(""), std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity(), -1.0}) {
    EXPECT_THROW(engine.schedule_at(time, 0), Error) << time;
  }
  engine.schedule_at(2.0, 0);
  engine.run([&](std::uint32_t) { EXPECT_THROW(engine.schedule_at(1.0, 0), Error); });
  EXPECT_EQ(engine.events(), 1U);
}

}  // namespace
}  // namespace hydraulis
