#include "sim/variance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "sim/iterations.h"
#include "tests/sim/hand_programs.h"
#include "tests/sim/small_model.h"

namespace hydraulis {
namespace {

using testing::HandPipeline;
using testing::pipeline_of;
using testing::small_model;

Slowdown on_devices(std::vector<int> devices, double factor) {
  Slowdown slowdown;
  slowdown.devices = std::move(devices);
  slowdown.factor = factor;
  return slowdown;
}

Variance jittered(double variation) {
  Variance variance;
  variance.seed = 7;
  variance.compute.variation = variation;
  variance.transfer.variation = variation;
  return variance;
}

/// Two pipelines of the small cluster: (1,2,2) on devices 0-3, (1,1,2) on 4 and 5.
BatchPlan two_pipelines() {
  BatchPlan plan;
  plan.pipelines = {pipeline_of(2, 1, {{500}, {300, 200}, {700}}),
                    pipeline_of(1, 2, {{400}, {900}})};
  return plan;
}

TEST(Variance, EachLawHasMeanOneAndTheVariationAskedFor) {
  for (const JitterLaw law : {JitterLaw::lognormal, JitterLaw::uniform, JitterLaw::tail}) {
    const Jitter jitter{law, 0.3, false};
    constexpr int kPoints = 1'000'000;
    double sum = 0;
    double squares = 0;
    double before = 0;
    for (int i = 0; i < kPoints; ++i) {
      const double factor = jitter_factor(jitter, (i + 0.5) / kPoints);
      EXPECT_GE(factor, before);  // grows with its argument: the slowest has the largest
      before = factor;
      sum += factor;
      squares += factor * factor;
    }
    const double mean = sum / kPoints;
    EXPECT_NEAR(mean, 1, 1e-4);
    EXPECT_NEAR(std::sqrt(squares / kPoints - mean * mean), 0.3, 1e-3);
  }
}

TEST(Variance, NoneIsByteIdenticalToZeroJitter) {
  const CostModel model = small_model();
  IterationOptions plain;
  IterationOptions zero;
  zero.variance = jittered(0);
  zero.variance.seed = 99;
  zero.variance.compute.law = JitterLaw::tail;
  IterationOptions once = zero;  // a factor of one
  once.variance.stragglers = {on_devices({0, 5}, 1)};
  once.variance.slow_links = {on_devices({1}, 1)};
  const auto expected = simulate_iteration(two_pipelines(), model, plain).replay;
  for (const IterationOptions& options : {zero, once}) {
    const auto got = simulate_iteration(two_pipelines(), model, options, 3).replay;
    EXPECT_EQ(got.makespan_seconds, expected.makespan_seconds);
    for (std::size_t s = 0; s < expected.spans.size(); ++s) {
      for (std::size_t i = 0; i < expected.spans[s].size(); ++i) {
        EXPECT_EQ(got.spans[s][i].start, expected.spans[s][i].start);
        EXPECT_EQ(got.spans[s][i].end, expected.spans[s][i].end);
      }
    }
  }
}

TEST(Variance, AStragglerSlowsTheWholeStageItIsIn) {
  // One pipeline of 2 stages, 3 micro-batches of 1 s forward and 2 s backward on each stage,
  // no transfers: 3 · (3 + 1) = 12 s.
  HandPipeline hand(2, 3, false);
  hand.program.stages[1].devices = {1, 2, 3, 4};  // a tensor-parallel group
  hand.program.devices = 5;
  hand.program.devices_per_node = 5;
  const CostModel model = small_model();
  const std::vector<double> weights{1, 1, 1};
  Variance variance;
  variance.stragglers = {on_devices({3}, 2)};
  Durations durations = hand.durations(weights, 2);
  vary(durations, hand.program, model, variance, 0);
  for (std::size_t i = 0; i < durations.seconds[0].size(); ++i) {
    const Op op = hand.program.stages[0].instructions[i].op;
    EXPECT_EQ(durations.seconds[0][i], op == Op::forward ? 1 : op == Op::backward ? 2 : 0);
  }
  // The second stage takes 2 s and 4 s: F at 1 s, then 3 · 6 s, then the first stage's backward.
  EXPECT_DOUBLE_EQ(replay(hand.program, durations).makespan_seconds, 1 + 3 * 6 + 2);
}

TEST(Variance, TheSlowestMemberDecidesWhateverTheOthersDraw) {
  // The same stage unfolded: as many one-device programs as it has members.
  const CostModel model = small_model();
  Variance variance = jittered(0.4);
  variance.stragglers = {on_devices({2}, 1.3), on_devices({2, 1}, 1.1)};
  for (const bool per_iteration : {false, true}) {
    variance.compute.per_iteration = per_iteration;
    HandPipeline together(1, 4, false);
    together.program.stages[0].devices = {0, 1, 2, 3};
    Durations folded = together.durations({1, 2, 3, 4}, 2);
    vary(folded, together.program, model, variance, 5);
    std::vector<double> slowest(folded.seconds[0].size(), 0);
    for (const int device : {0, 1, 2, 3}) {
      HandPipeline alone(1, 4, false);
      alone.program.stages[0].devices = {device};
      Durations own = alone.durations({1, 2, 3, 4}, 2);
      vary(own, alone.program, model, variance, 5);
      for (std::size_t i = 0; i < slowest.size(); ++i) {
        slowest[i] = std::max(slowest[i], own.seconds[0][i]);
      }
    }
    for (std::size_t i = 0; i < slowest.size(); ++i) {
      EXPECT_DOUBLE_EQ(folded.seconds[0][i], slowest[i]);
    }
  }
}

TEST(Variance, ADeviceMoreChangesNothingElsewhere) {
  const CostModel model = small_model();
  Variance variance = jittered(0.2);
  Slowdown chosen;
  chosen.device_share = 0.5;
  chosen.factor = 1.5;
  chosen.probability = 0.7;
  variance.stragglers = {chosen};
  IterationOptions options;
  options.costing.no_communication = true;
  options.variance = variance;
  BatchPlan one;
  one.pipelines = {two_pipelines().pipelines[0]};
  BatchPlan more = two_pipelines();  // the second pipeline's devices come after the first's
  for (std::uint64_t iteration = 0; iteration < 5; ++iteration) {
    const auto without = simulate_iteration(one, model, options, iteration);
    const auto with = simulate_iteration(more, model, options, iteration);
    ASSERT_EQ(without.program.stages[0].devices, with.program.stages[0].devices);
    const auto& left = without.program.stages[0].instructions;
    const auto& right = with.program.stages[0].instructions;
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (left[i].op != Op::forward && left[i].op != Op::backward) continue;
      ASSERT_EQ(left[i].op, right[i].op);
      const auto seconds = [&](const SimulatedIteration& of) {
        return varied_durations(of.program, model, options, iteration).seconds[0][i];
      };
      EXPECT_EQ(seconds(without), seconds(with));
    }
  }
}

TEST(Variance, RunsAreTheSameOnAnyNumberOfThreadsAndDifferByIterationAndSeed) {
  const CostModel model = small_model();
  IterationOptions options;
  options.variance = jittered(0.1);
  const std::vector<BatchPlan> plans(12, two_pipelines());
  const RunResult one = simulate(plans, model, options);
  options.threads = 3;
  const RunResult three = simulate(plans, model, options);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    EXPECT_EQ(one.iterations[i].time_seconds, three.iterations[i].time_seconds);
    if (i > 0) {
      EXPECT_NE(one.iterations[i].time_seconds, one.iterations[i - 1].time_seconds);
    }
    const Losses& losses = one.iterations[i].losses;
    const double all = one.iterations[i].time_seconds * model.cluster.devices();
    EXPECT_NEAR(losses.whole(), all, 1e-9 * all);
  }
  options.variance.seed = 8;
  EXPECT_NE(simulate(plans, model, options).iterations[0].time_seconds,
            one.iterations[0].time_seconds);
}

TEST(Variance, AStragglerForAWhileIsSlowOnlyThen) {
  Variance variance;
  Slowdown slowdown = on_devices({}, 3);
  slowdown.nodes = {1};
  slowdown.from = 10;
  slowdown.count = 5;
  variance.stragglers = {slowdown};
  for (std::uint64_t iteration = 0; iteration < 30; ++iteration) {
    const double expected = iteration >= 10 && iteration < 15 ? 3 : 1;
    EXPECT_EQ(compute_slowdown(variance, 4, 4, iteration), expected);
    EXPECT_EQ(compute_slowdown(variance, 3, 4, iteration), 1);
  }
}

TEST(Variance, SharesAndProbabilitiesAreMet) {
  Variance variance;
  Slowdown slowdown;
  slowdown.device_share = 0.1;
  slowdown.factor = 2;
  variance.stragglers = {slowdown};
  int slow = 0;
  for (int device = 0; device < 10'000; ++device) {
    slow += compute_slowdown(variance, device, 8, 0) > 1 ? 1 : 0;
    // Permanent: chosen once.
    EXPECT_EQ(compute_slowdown(variance, device, 8, 0), compute_slowdown(variance, device, 8, 77));
  }
  EXPECT_NEAR(slow, 1000, 4 * 30);  // four standard deviations
  slowdown = on_devices({3}, 2);
  slowdown.probability = 0.25;
  variance.stragglers = {slowdown};
  slow = 0;
  for (std::uint64_t iteration = 0; iteration < 10'000; ++iteration) {
    slow += compute_slowdown(variance, 3, 8, iteration) > 1 ? 1 : 0;
  }
  EXPECT_NEAR(slow, 2500, 4 * 44);
  // A node's devices are slow together.
  Slowdown of_node;
  of_node.node_share = 0.5;
  of_node.factor = 2;
  variance.stragglers = {of_node};
  for (int device = 0; device < 800; ++device) {
    EXPECT_EQ(compute_slowdown(variance, device, 8, 0),
              compute_slowdown(variance, device / 8 * 8, 8, 0));
  }
}

TEST(Variance, SlowLinksLengthenTheirOwnPartOfATransfer) {
  // 100 MB/s inside and 10 MB/s between nodes: of 1 MB inside and 1 MB between, 1/11 of the time is
  // inside. Devices 0 to 3 are one node.
  const CostModel model = small_model();
  HandPipeline hand(2, 1, false);
  hand.program.devices = 8;
  hand.program.devices_per_node = 4;
  hand.program.stages[1].devices = {4};
  for (Stage& stage : hand.program.stages) {
    for (Instruction& instruction : stage.instructions) {
      if (instruction.stream == StreamKind::compute) continue;
      instruction.intra_node_bytes = instruction.inter_node_bytes = 1'000'000;
    }
  }
  const auto makespan = [&](bool inside, bool between) {
    Variance variance;
    variance.slow_links = {on_devices({4}, 3)};
    variance.slow_links[0].inside_nodes = inside;
    variance.slow_links[0].between_nodes = between;
    Durations durations = hand.durations({1}, 2, 1);
    vary(durations, hand.program, model, variance, 0);
    return replay(hand.program, durations).makespan_seconds;
  };
  // Two passes on each of two stages, a transfer each way.
  EXPECT_DOUBLE_EQ(makespan(false, false), 6 + 2);
  EXPECT_DOUBLE_EQ(makespan(false, true), 6 + 2 * (1.0 / 11 + 3 * 10.0 / 11));
  EXPECT_DOUBLE_EQ(makespan(true, false), 6 + 2 * (3 * 1.0 / 11 + 10.0 / 11));
  EXPECT_DOUBLE_EQ(makespan(true, true), 6 + 2 * 3);
}

TEST(Variance, WhoOwnsParametersSlowsThoseWhoGatherThem) {
  const CostModel model =
      small_model();  // optimizer layout (2,2,2): devices 4 to 7 own layers 2, 3
  BatchPlan plan = two_pipelines();
  const auto gather_of = [&](int slow_device) {
    IterationOptions options;
    options.variance.slow_links = {on_devices({slow_device}, 5)};
    const auto one = simulate_iteration(plan, model, options);
    const auto plain = instruction_durations(one.program, model);
    const auto varied = varied_durations(one.program, model, options, 0);
    std::vector<double> factors;  // of the first stage's gathers
    for (std::size_t i = 0; i < plain.seconds[0].size(); ++i) {
      const Instruction& instruction = one.program.stages[0].instructions[i];
      if (instruction.op != Op::gather_parameters || instruction.layer_end != 1) continue;
      if (plain.seconds[0][i] > 0) factors.push_back(varied.seconds[0][i] / plain.seconds[0][i]);
    }
    return factors;
  };
  // Layer 0 comes from devices 0 to 3; device 7 has nothing to do with it.
  for (const double factor : gather_of(2)) EXPECT_NEAR(factor, 5, 1e-9);
  for (const double factor : gather_of(7)) EXPECT_EQ(factor, 1);
  EXPECT_FALSE(gather_of(2).empty());
}

TEST(Variance, NamesOfDevicesThatAreNotThereAreRefused) {
  const CostModel model = small_model();
  Variance variance;
  variance.stragglers = {on_devices({7}, 2)};
  check_variance(variance, model.cluster, "faults.json");
  variance.slow_links = {on_devices({1}, 2), on_devices({8}, 2)};
  try {
    check_variance(variance, model.cluster, "faults.json");
    FAIL() << "not refused";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "faults.json: field 'slow_links[1].devices' names 8, expected 0 to 7 of cluster "
                 "small");
  }
}

}  // namespace
}  // namespace hydraulis
