// Schedules beyond 1F1B on hand-solved and unequal cases, without a program around them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "planner/schedule_list.h"
#include "planner/schedule_plan.h"

namespace hydraulis {
namespace {

ScheduleWork equal_work(int stages, int micro_batches, int chunks = 1) {
  return even_work(stages, chunks,
                   std::vector<PassSeconds>(static_cast<std::size_t>(micro_batches), {1, 1, 1}));
}

/// The unequal micro-batches of the foundation issue: forward w, backward 2w, w tokens.
ScheduleWork unequal_work(int stages, int micro_batches) {
  std::uint32_t x = 12345;
  std::vector<PassSeconds> seconds;
  std::vector<double> tokens;
  for (int j = 0; j < micro_batches; ++j) {
    x = 1664525u * x + 1013904223u;
    const double w = 0.25 + 1.5 * static_cast<double>(x / 256) / (1 << 24);
    seconds.push_back({w, w, w});
    tokens.push_back(w);
  }
  ScheduleWork work = even_work(stages, 1, seconds);
  work.tokens = tokens;
  return work;
}

/// Live tokens that 1F1B needs when the longest micro-batches come first.
double longest_first_peak(const ScheduleWork& work) {
  std::vector<double> tokens = work.tokens;
  std::sort(tokens.rbegin(), tokens.rend());
  return std::accumulate(tokens.begin(), tokens.begin() + work.stages, 0.0);
}

double most(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

double makespan(Schedule schedule, const ScheduleWork& work) {
  return steps_makespan(work, schedule_steps({schedule, work.chunks}, work));
}

TEST(Schedules, UniformClosedForms) {
  for (const auto& [p, m] : {std::pair{2, 4}, {4, 4}, {4, 16}, {8, 16}, {8, 64}}) {
    EXPECT_DOUBLE_EQ(makespan(Schedule::one_f_one_b, equal_work(p, m)), 3.0 * (m + p - 1));
    EXPECT_DOUBLE_EQ(makespan(Schedule::gpipe, equal_work(p, m)), 3.0 * (m + p - 1));
    // Bubble (p − 1)·(forward + input gradient − weight gradient).
    EXPECT_DOUBLE_EQ(makespan(Schedule::zero_bubble_h1, equal_work(p, m)), 3.0 * m + p - 1);
    for (const int v : {2, 4}) {
      // Each run of layers takes a second of forward here, so a stage's whole is v as much: bubble
      // (p − 1)/(v·m) of the work.
      EXPECT_DOUBLE_EQ(makespan(Schedule::interleaved, equal_work(p, m, v)),
                       3.0 * v * m * (1 + (p - 1.0) / (v * m)))
          << p << " " << m << " " << v;
    }
  }
}

TEST(Schedules, ZeroBubbleH1HoldsNoMoreThan1F1BAndDrainsLikeIt) {
  for (const auto& [p, m] : {std::pair{4, 16}, {8, 16}, {8, 3}, {3, 1}}) {
    const ScheduleWork work = equal_work(p, m);
    const auto peaks = peak_alive(work, schedule_steps({Schedule::zero_bubble_h1, 1}, work));
    EXPECT_LE(most(peaks),
              most(peak_alive(work, schedule_steps({Schedule::one_f_one_b, 1}, work))));
  }
}

TEST(Schedules, InterleavedHoldsWhatItsWarmUpSays) {
  // 2·(p − 1) + (v − 1)·p + 1 runs of layers, each an 1/v of a micro-batch.
  const ScheduleWork work = equal_work(4, 16, 2);
  const auto peaks = peak_alive(work, schedule_steps({Schedule::interleaved, 2}, work));
  EXPECT_DOUBLE_EQ(peaks[0], (2 * 3 + 4 + 1) / 2.0);
  EXPECT_DOUBLE_EQ(peaks[3], (4 + 1) / 2.0);
}

TEST(Schedules, EveryScheduleEndsForAnyNumberOfMicroBatches) {
  for (int p = 1; p <= 6; ++p) {
    for (int m = 1; m <= 20; ++m) {
      for (const Schedule schedule :
           {Schedule::one_f_one_b, Schedule::gpipe, Schedule::zero_bubble_h1, Schedule::zero_bubble,
            Schedule::unequal}) {
        EXPECT_TRUE(std::isfinite(makespan(schedule, equal_work(p, m)))) << p << " " << m;
      }
      for (const int v : {2, 3}) {
        EXPECT_TRUE(std::isfinite(makespan(Schedule::interleaved, equal_work(p, m, v))))
            << p << " " << m << " " << v;
      }
    }
  }
}

TEST(Schedules, EveryStepOnceInOrder) {
  const ScheduleWork work = unequal_work(4, 12);
  for (const Schedule schedule : {Schedule::zero_bubble_h1, Schedule::zero_bubble}) {
    for (const auto& steps : schedule_steps({schedule, 1}, work)) {
      std::set<std::pair<Pass, int>> seen;
      for (const ComputeStep& step : steps) {
        EXPECT_TRUE(seen.insert({step.pass, step.micro_batch}).second);
        if (step.pass == Pass::backward_input) {
          EXPECT_TRUE(seen.contains({Pass::forward, step.micro_batch}));
        }
        if (step.pass == Pass::backward_weight) {
          EXPECT_TRUE(seen.contains({Pass::backward_input, step.micro_batch}));
        }
      }
      EXPECT_EQ(seen.size(), 36u);
    }
  }
}

TEST(Schedules, ListSchedulesKeepToTheMemoryLimit) {
  Random random(7);
  for (int round = 0; round < 40; ++round) {
    const int p = 2 + static_cast<int>(random.below(4));
    ScheduleWork work = unequal_work(p, 3 + static_cast<int>(random.below(20)));
    const double largest = most(work.tokens);
    work.most_alive.assign(static_cast<std::size_t>(p), largest * (1 + 3 * random.uniform()));
    for (const bool split : {false, true}) {
      for (const ListRule& rule : kListRules) {
        const ListSchedule one = list_schedule(work, split, rule);
        if (!std::isfinite(one.makespan)) {
          EXPECT_TRUE(rule.in_turn);
          continue;
        }
        EXPECT_LE(most(peak_alive(work, one.steps)), work.most_alive[0] * (1 + 1e-9));
        // The steps' own recurrence: what waiting was for nothing falls away.
        EXPECT_LE(steps_makespan(work, one.steps), one.makespan * (1 + 1e-12));
        EXPECT_GE(steps_makespan(work, one.steps), schedule_lower_bound(work, split) * (1 - 1e-12));
      }
    }
  }
}

TEST(Schedules, AMicroBatchLargerThanTheLimitRunsAlone) {
  ScheduleWork work = unequal_work(3, 5);
  work.most_alive.assign(3, 0.1);
  const StageSteps steps = best_list_schedule(work, false).steps;
  EXPECT_DOUBLE_EQ(most(peak_alive(work, steps)), most(work.tokens));
}

// Issue: plain 1F1B 322.157 and 691.617 as drawn, 226.780 and 461.179 longest first; DynaPipe's
// cyclic schedule 232.155 and 486.678, all without a memory limit. The limit here is what 1F1B
// longest first needs.
TEST(Schedules, UnequalMicroBatchesBeatTheKnownSchedules) {
  struct Case {
    int stages, micro_batches;
    double best_known, at_most, split_at_most;
  };
  for (const Case& c : {Case{8, 64, 226.780, 216.2, 202.5}, {16, 128, 461.179, 439.2, 410.0}}) {
    ScheduleWork work = unequal_work(c.stages, c.micro_batches);
    const double limit = longest_first_peak(work);
    work.most_alive.assign(static_cast<std::size_t>(c.stages), limit);
    for (const Schedule schedule : {Schedule::unequal, Schedule::zero_bubble}) {
      const OrderedSchedule found = order_for_schedule({schedule, 1}, work);
      EXPECT_LT(found.makespan, c.best_known);
      EXPECT_LE(found.makespan, schedule == Schedule::unequal ? c.at_most : c.split_at_most);
      const ScheduleWork ordered = reordered(work, found.order);
      EXPECT_LE(most(peak_alive(ordered, found.steps)), limit * (1 + 1e-9));
      EXPECT_DOUBLE_EQ(steps_makespan(ordered, found.steps), found.makespan);
      const double bound = schedule_lower_bound(work, splits_backward(schedule));
      EXPECT_GE(found.makespan, bound);
      EXPECT_LT(found.makespan, bound * (schedule == Schedule::unequal ? 1.06 : 1.01));
    }
    // As much memory as it likes.
    work.most_alive.clear();
    const OrderedSchedule free = order_for_schedule({Schedule::unequal, 1}, work);
    EXPECT_LT(free.makespan, 1.025 * schedule_lower_bound(work, false));
  }
}

TEST(Schedules, TheBoundHoldsForEveryOrderAndIsMetWhereThereIsNoBubble) {
  const ScheduleWork one = unequal_work(1, 5);
  EXPECT_NEAR(schedule_lower_bound(one, false), makespan(Schedule::one_f_one_b, one), 1e-12);
  EXPECT_DOUBLE_EQ(schedule_lower_bound(equal_work(4, 16), true),
                   makespan(Schedule::zero_bubble_h1, equal_work(4, 16)));
  EXPECT_DOUBLE_EQ(schedule_lower_bound(equal_work(4, 16), false),
                   makespan(Schedule::one_f_one_b, equal_work(4, 16)));
  // Memory for two of four stages' micro-batches: 4 tokens' way of 12 s each, 16 of them, two at a
  // time.
  ScheduleWork tight = equal_work(4, 16);
  tight.most_alive.assign(4, 2);
  EXPECT_DOUBLE_EQ(schedule_lower_bound(tight, false), 16 * 12 / 2.0);
  EXPECT_GE(makespan(Schedule::unequal, tight), 16 * 12 / 2.0);
  ScheduleWork work = unequal_work(3, 5);
  const double bound = schedule_lower_bound(work, false);
  std::vector<int> order{0, 1, 2, 3, 4};
  do {
    const ScheduleWork other = reordered(work, order);
    EXPECT_GE(makespan(Schedule::one_f_one_b, other), bound);
    EXPECT_GE(makespan(Schedule::gpipe, other), bound);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Schedules, TheOrderIsAPermutationAndNeverWorse) {
  for (const Schedule schedule : {Schedule::one_f_one_b, Schedule::gpipe, Schedule::interleaved,
                                  Schedule::zero_bubble_h1, Schedule::zero_bubble}) {
    ScheduleWork work = unequal_work(4, 11);
    if (schedule == Schedule::interleaved) {
      work = even_work(4, 2,
                       std::vector<PassSeconds>(work.seconds.begin(), work.seconds.begin() + 11));
    }
    const ScheduleChoice choice{schedule, work.chunks};
    const OrderedSchedule found = order_for_schedule(choice, work, 3000);
    std::vector<int> sorted = found.order;
    std::sort(sorted.begin(), sorted.end());
    for (int j = 0; j < 11; ++j) EXPECT_EQ(sorted[static_cast<std::size_t>(j)], j);
    EXPECT_LE(found.makespan, makespan(schedule, work) * (1 + 1e-12));
    EXPECT_EQ(order_for_schedule(choice, work, 3000).order, found.order);
  }
}

TEST(Schedules, NamesGoBackAndForth) {
  for (const char* name : {"1f1b", "gpipe", "interleaved:3", "zb-h1", "zb", "unequal"}) {
    EXPECT_EQ(to_string(parse_schedule(name, "--schedule")), name);
  }
  EXPECT_EQ(parse_schedule("interleaved", "x"), (ScheduleChoice{Schedule::interleaved, 2}));
  for (const char* name : {"", "1f1b:2", "interleaved:", "interleaved:1", "interleaved:x", "zbv"}) {
    EXPECT_THROW(parse_schedule(name, "--schedule"), InputError) << name;
  }
}

TEST(Schedules, LayersOfVirtualStages) {
  Scheme scheme;
  scheme.pp = 4;
  EXPECT_EQ(virtual_stage_layers(scheme, 60, 2), (std::vector<int>{8, 8, 8, 8, 7, 7, 7, 7}));
  EXPECT_THROW(virtual_stage_layers(scheme, 4, 2), InputError);
  scheme.pp = 1;
  EXPECT_EQ(on_scheme({Schedule::interleaved, 2}, scheme).chunks, 1);
}

TEST(Schedules, WeightGradientsAreTheLinearPart) {
  const PassCost cost{{1e-6, 1e-3, 0.1}, {}};
  const PassSeconds seconds = cost.of(1e6, 300);
  EXPECT_NEAR(seconds.forward, (1 + 0.3 + 0.1) / 3, 1e-12);
  EXPECT_NEAR(seconds.backward_weight, (0.3 + 0.1) / 3, 1e-12);
  EXPECT_NEAR(seconds.forward + seconds.backward(), 1.4, 1e-12);
}

}  // namespace
}  // namespace hydraulis
