#include "planner/dispatch.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/bounds.h"
#include "small_instances.h"

namespace hydraulis {
namespace {

std::vector<int> sizes(const Dispatching& dispatching) {
  std::vector<int> result;
  for (const auto& part : dispatching.sequences) result.push_back(static_cast<int>(part.size()));
  std::sort(result.rbegin(), result.rend());
  return result;
}

void expect_valid(const Dispatching& dispatching, const std::vector<PipelineCost>& pipelines,
                  const std::vector<Sequence>& sequences) {
  ASSERT_EQ(dispatching.sequences.size(), pipelines.size());
  std::vector<int> seen(sequences.size(), 0);
  for (std::size_t k = 0; k < pipelines.size(); ++k) {
    for (const int index : dispatching.sequences[k]) {
      ++seen.at(static_cast<std::size_t>(index));
      EXPECT_LE(pipelines[k].padded(sequences[static_cast<std::size_t>(index)].length),
                pipelines[k].max_tokens);
    }
  }
  for (const int times : seen) EXPECT_EQ(times, 1);
}

TEST(Dispatch, TiesAreSharedEvenly) {
  const std::vector<PipelineCost> pipelines(4,
                                            test::make_pipeline(1, 1, 1, 4096, {1e-8, 1e-4, 0.01}));
  const auto sequences = test::make_sequences(std::vector<std::uint32_t>(9, 300));
  const Dispatching dispatching = dispatch(pipelines, sequences, {}, 0);
  expect_valid(dispatching, pipelines, sequences);
  EXPECT_EQ(sizes(dispatching), (std::vector{3, 2, 2, 2}));
}

TEST(Dispatch, PipelinesMayStayIdle) {
  const std::vector<PipelineCost> pipelines(4,
                                            test::make_pipeline(1, 1, 1, 4096, {1e-8, 1e-4, 0.01}));
  const auto sequences = test::make_sequences({100, 100});
  const Dispatching dispatching = dispatch(pipelines, sequences, {}, 0);
  expect_valid(dispatching, pipelines, sequences);
  EXPECT_EQ(sizes(dispatching), (std::vector{1, 1, 0, 0}));
}

TEST(Dispatch, RandomInstancesAreValidAndRepeatable) {
  Random random(31);
  for (int round = 0; round < 200; ++round) {
    const auto instance = test::random_instance(random, 40, 4);
    const double bound =
        makespan_lower_bound(instance.pipelines, instance.sequences, BoundEffort::quick);
    DispatchEffort effort;
    effort.evaluations = 5000;
    const Dispatching once = dispatch(instance.pipelines, instance.sequences, {}, bound, effort);
    expect_valid(once, instance.pipelines, instance.sequences);
    const Dispatching again = dispatch(instance.pipelines, instance.sequences, {}, bound, effort);
    EXPECT_EQ(once.sequences, again.sequences);
    EXPECT_EQ(once.estimated_seconds, again.estimated_seconds);
  }
}

TEST(Dispatch, CorrectionsShiftLoad) {
  const std::vector<PipelineCost> pipelines(2, test::make_pipeline(1, 1, 1, 100'000, {0, 1, 1}));
  const auto sequences = test::make_sequences(std::vector<std::uint32_t>(90, 10));
  const Dispatching dispatching = dispatch(pipelines, sequences, std::vector{2.0, 1.0}, 0);
  expect_valid(dispatching, pipelines, sequences);
  // The first takes twice as long as it seems, so it gets half as much.
  EXPECT_NEAR(static_cast<double>(dispatching.sequences[0].size()), 30, 1);
}

TEST(Dispatch, CountsTheConstantPerMicroBatch) {
  // With one sequence a micro-batch, 4 of 60 cost the first pipeline 4 constants; the second packs
  // all of them into one.
  const std::vector<PipelineCost> pipelines{test::make_pipeline(1, 1, 1, 100, {0, 0.01, 10}),
                                            test::make_pipeline(1, 2, 1, 400, {0, 0.01, 10})};
  const auto sequences = test::make_sequences({60, 60, 60, 60, 60, 60});
  const Dispatching dispatching = dispatch(pipelines, sequences, {}, 0);
  expect_valid(dispatching, pipelines, sequences);
  EXPECT_LE(dispatching.sequences[0].size(), 1u);
}

TEST(Dispatch, EstimateOfASinglePackIsItsTime) {
  const auto pipeline = test::make_pipeline(1, 1, 1, 1000, {1e-5, 0.01, 0.7});
  const double work = pipeline.sequence_seconds(200) + pipeline.sequence_seconds(300);
  const double longest[] = {pipeline.sequence_seconds(300)};
  EXPECT_NEAR(estimate_pipeline_seconds(pipeline, work, 500, longest, 0), work + 0.7, 1e-9);
}

}  // namespace
}  // namespace hydraulis
