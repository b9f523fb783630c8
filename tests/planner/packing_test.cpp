#include "planner/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "planner/bubble.h"
#include "planner/schedule.h"
#include "small_instances.h"
#include "traces/length_trace.h"

namespace hydraulis {
namespace {

void expect_valid(const PipelinePlan& plan, const PipelineCost& pipeline,
                  const std::vector<Sequence>& sequences) {
  std::map<std::uint64_t, std::uint32_t> placed;
  for (const MicroBatch& micro_batch : plan.micro_batches) {
    ASSERT_FALSE(micro_batch.lengths.empty());
    ASSERT_EQ(micro_batch.lengths.size(), micro_batch.sequence_ids.size());
    std::int64_t padded = 0;
    for (std::size_t i = 0; i < micro_batch.lengths.size(); ++i) {
      EXPECT_TRUE(placed.emplace(micro_batch.sequence_ids[i], micro_batch.lengths[i]).second);
      padded += pipeline.padded(micro_batch.lengths[i]);
    }
    EXPECT_EQ(static_cast<std::int64_t>(micro_batch.tokens() + micro_batch.padding), padded);
    EXPECT_LE(padded, pipeline.max_tokens);
  }
  ASSERT_EQ(placed.size(), sequences.size());
  for (const Sequence& sequence : sequences) EXPECT_EQ(placed.at(sequence.id), sequence.length);
  EXPECT_EQ(plan.scheme, pipeline.scheme);
  const double seconds = pipeline_makespan(pipeline, plan.micro_batches);
  EXPECT_NEAR(plan.time_seconds, seconds, 1e-12 * seconds);
}

/// What a simple packer does: first-fit decreasing, in the order the bins were opened.
double first_fit_decreasing_seconds(const PipelineCost& pipeline, std::vector<Sequence> sequences) {
  std::stable_sort(sequences.begin(), sequences.end(),
                   [](const Sequence& x, const Sequence& y) { return x.length > y.length; });
  std::vector<MicroBatch> bins;
  for (const Sequence& sequence : sequences) {
    const auto padded = static_cast<std::uint64_t>(pipeline.padded(sequence.length));
    const auto room = std::find_if(bins.begin(), bins.end(), [&](const MicroBatch& bin) {
      return static_cast<std::int64_t>(bin.tokens() + bin.padding + padded) <= pipeline.max_tokens;
    });
    MicroBatch& bin = room == bins.end() ? bins.emplace_back() : *room;
    bin.sequence_ids.push_back(sequence.id);
    bin.lengths.push_back(sequence.length);
    bin.padding += padded - sequence.length;
  }
  return pipeline_makespan(pipeline, bins);
}

std::vector<Sequence> random_sequences(Random& random, int most, std::int64_t longest) {
  std::vector<std::uint32_t> lengths(1 + random.below(static_cast<std::uint64_t>(most)));
  for (std::uint32_t& length : lengths) {
    const double u = random.uniform();
    length = 1 + static_cast<std::uint32_t>(u * u * static_cast<double>(longest - 1));
  }
  return test::make_sequences(lengths);
}

TEST(Packing, ValidAndTimedByTheRecurrence) {
  Random random(21);
  for (int round = 0; round < 150; ++round) {
    const int cp = round % 4 == 0 ? 2 : 1;
    const int pp = 1 + static_cast<int>(random.below(6));
    const auto pipeline =
        test::make_pipeline(cp, 1, pp, 512 * (1 + static_cast<std::int64_t>(random.below(16))),
                            {1e-8 * random.uniform(), 1e-4, 0.1 * random.uniform()});
    const auto sequences = random_sequences(random, 80, pipeline.max_tokens);
    const PipelinePlan plan = pack_pipeline(pipeline, sequences);
    expect_valid(plan, pipeline, sequences);
    double work = 0;
    for (const Sequence& sequence : sequences) work += pipeline.sequence_seconds(sequence.length);
    const auto count = static_cast<std::int64_t>(plan.micro_batches.size());
    const double busy = work + static_cast<double>(count) * pipeline.slowest.c;
    EXPECT_GE(plan.time_seconds, least_bubble_factor(pp, count) * busy * (1 - 1e-9));
    if (pp > 1) {
      EXPECT_LE(plan.time_seconds, first_fit_decreasing_seconds(pipeline, sequences) * (1 + 1e-9));
    }
  }
}

TEST(Packing, OneStageUsesTheFewestMicroBatches) {
  Random random(22);
  int optimal = 0;
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    const auto pipeline = test::make_pipeline(round % 3 == 0 ? 2 : 1, 1, 1, 60, {0, 0, 1});
    const auto sequences = random_sequences(random, 7, 60);
    const PipelinePlan plan = pack_pipeline(pipeline, sequences);
    expect_valid(plan, pipeline, sequences);
    // Only the constant costs, so the least time is the fewest micro-batches.
    const test::ExhaustivePipeline exact(pipeline, sequences);
    const auto fewest = std::lround(exact.seconds((std::size_t{1} << sequences.size()) - 1));
    const auto found = static_cast<long>(plan.micro_batches.size());
    EXPECT_GE(found, fewest);
    EXPECT_LE(found, fewest + 1);
    optimal += found == fewest ? 1 : 0;
  }
  EXPECT_GE(optimal, kRounds * 99 / 100);
}

TEST(Packing, SeveralStagesComeCloseToTheExhaustiveOptimum) {
  Random random(23);
  double sum = 0;
  double worst = 0;
  constexpr int kRounds = 100;
  for (int round = 0; round < kRounds; ++round) {
    const int pp = 2 + static_cast<int>(random.below(3));
    const auto pipeline = test::make_pipeline(1, 1, pp, 60, {1e-4, 0.01, 0.3 * random.uniform()});
    const auto sequences = random_sequences(random, 6, 60);
    const PipelinePlan plan = pack_pipeline(pipeline, sequences);
    const test::ExhaustivePipeline exact(pipeline, sequences);
    const double best = exact.seconds((std::size_t{1} << sequences.size()) - 1);
    EXPECT_GE(plan.time_seconds, best * (1 - 1e-9));
    sum += plan.time_seconds / best - 1;
    worst = std::max(worst, plan.time_seconds / best - 1);
  }
  RecordProperty("mean_gap_percent", fmt::format("{:.3f}", 100 * sum / kRounds));
  RecordProperty("worst_gap_percent", fmt::format("{:.3f}", 100 * worst));
  fmt::print("gap to the optimum: mean {:.3f} %, worst {:.3f} %\n", 100 * sum / kRounds,
             100 * worst);
  EXPECT_LE(sum / kRounds, 0.01);
  EXPECT_LE(worst, 0.10);
}

TEST(Packing, StagesThatDifferAreTimedByTheRealStages) {
  PipelineCost pipeline = test::make_pipeline(1, 1, 3, 100, {0, 0.02, 0.1});
  pipeline.stages[1] = {0, 0.01, 0.05};
  const auto sequences = test::make_sequences({90, 80, 70, 60, 50, 10});
  expect_valid(pack_pipeline(pipeline, sequences), pipeline, sequences);
}

TEST(Packing, PolishOnlyImproves) {
  Random random(24);
  for (int round = 0; round < 40; ++round) {
    const auto pipeline = test::make_pipeline(1, 1, 4, 1000, {1e-6, 1e-3, 0.05});
    const auto sequences = random_sequences(random, 30, 1000);
    PackingEffort effort;
    const double plain = pack_pipeline(pipeline, sequences, effort).time_seconds;
    effort.polish_evaluations = 2000;
    const PipelinePlan polished = pack_pipeline(pipeline, sequences, effort);
    expect_valid(polished, pipeline, sequences);
    EXPECT_LE(polished.time_seconds, plain * (1 + 1e-12));
  }
}

TEST(Packing, NoSequencesTakeNoTime) {
  const PipelinePlan plan = pack_pipeline(test::make_pipeline(1, 1, 4, 100, {0, 1, 1}), {});
  EXPECT_TRUE(plan.micro_batches.empty());
  EXPECT_EQ(plan.time_seconds, 0);
}

TEST(Packing, ContextParallelPaddingIsToTwiceTheRanks) {
  const auto pipeline = test::make_pipeline(2, 1, 1, 32, {0, 1, 1});
  const auto sequences =
      test::make_sequences(load_trace(HYDRAULIS_TEST_DATA "/lengths/cp2_4_8_6_10.txt").lengths);
  std::vector<std::int64_t> padded;
  for (const Sequence& sequence : sequences) padded.push_back(pipeline.padded(sequence.length));
  EXPECT_EQ(padded, (std::vector<std::int64_t>{4, 8, 8, 12}));
  const PipelinePlan plan = pack_pipeline(pipeline, sequences);
  ASSERT_EQ(plan.micro_batches.size(), 1u);  // 32 tokens with padding fit exactly
  EXPECT_EQ(plan.micro_batches[0].padding, 4u);
  EXPECT_NEAR(plan.time_seconds, 33, 1e-12);
}

}  // namespace
}  // namespace hydraulis
