// Pipelines with unlike work, one a rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/training_cases.h"

namespace hydraulis::test {
namespace {

// Pipelines with unlike work, one a rank.
class Pipelines : public testing::Test {
 protected:
  int ranks() const { return mpi_process().world->size(); }
  /// One pipeline of one device a rank, those left out idle.
  BatchPlan one_each(const Documents& documents,
                     const std::vector<std::vector<std::vector<std::uint64_t>>>& work) const {
    std::vector<Assigned> pipelines;
    for (int rank = 0; rank < ranks(); ++rank) {
      Assigned assigned{scheme(1, 1, 1), {}};
      for (std::size_t i = rank; i < work.size(); i += ranks()) {
        assigned.micro_batches.insert(assigned.micro_batches.end(), work[i].begin(), work[i].end());
      }
      pipelines.push_back(assigned);
    }
    return assign(documents, pipelines);
  }
};

TEST_F(Pipelines, A03UnequalNumbersOfMicroBatches) {
  const DecoderSpec decoder = small_decoder();
  const Documents documents = random_documents({1000, 1000, 1000, 1000}, decoder.shape.vocab, 3);
  expect_as_alone(decoder, documents, one_each(documents, {{{0}, {1}, {2}}, {{3}}}));
}

TEST_F(Pipelines, A05FewerSequencesThanPipelines) {
  const DecoderSpec decoder = small_decoder();
  const std::vector<int> two = read_lengths("two_for_four_ranks.txt");
  ASSERT_EQ(two.size(), 2U);
  const Documents few = random_documents(two, decoder.shape.vocab, 5);
  expect_as_alone(decoder, few, one_each(few, {{{0}}, {{1}}}));
  const Documents five = random_documents({11, 6, 8, 3, 9}, decoder.shape.vocab, 6);
  expect_as_alone(decoder, five, one_each(five, {{{0, 1}, {4}}, {{2, 3}}}));
  expect_as_alone(decoder, five, one_each(five, {{{0, 1}, {4}}, {{2, 3}, {}}}));
}

TEST_F(Pipelines, A20TheMeanIsOverTokens) {
  // Ten targets of loss 1 on one rank, a thousand of loss 3 on another (or the same).
  IterationOutcome mine;
  if (mpi_process().world->rank() == 0) {
    mine.loss_sum += 10 * 1.0;
    mine.targets += 10;
  }
  if (mpi_process().world->rank() == ranks() - 1) {
    mine.loss_sum += 1000 * 3.0;
    mine.targets += 1000;
  }
  const Backend backend{mpi_process().device.get(), nullptr, mpi_process().world.get(),
                        DataType::f64};
  const StepOutcome outcome = global_loss(backend, mine);
  EXPECT_NEAR(outcome.loss, 2.980198, 5e-7);
  EXPECT_EQ(outcome.targets, 1010);
}

TEST_F(Pipelines, A20AnyCutOfABatchHasTheSameLossAndGradients) {
  const DecoderSpec decoder = small_decoder();
  const Documents documents = random_documents({2, 60, 3, 5, 40, 2}, decoder.shape.vocab, 20);
  using Work = std::vector<std::vector<std::vector<std::uint64_t>>>;
  for (const Work& work : {Work{{{0, 1, 2, 3, 4, 5}}}, Work{{{0}, {1}, {2}, {3}, {4}, {5}}},
                           Work{{{0, 2, 5}}, {{1}, {4, 3}}}, Work{{{0}}, {{1, 2, 3, 4, 5}}}}) {
    expect_as_alone(decoder, documents, one_each(documents, work));
  }
  // The mean over tokens, from the tokens' own losses.
  Trainee trainee(*mpi_process().world, DataType::f64, decoder, {ranks(), 1, 1});
  const BatchPlan plan = one_each(documents, {{{0, 2, 5}}, {{1}, {4, 3}}});
  double sum = 0;
  std::int64_t count = 0;
  for (const auto& losses : trainee.token_losses(documents, plan)) {
    for (const double loss : losses) {
      if (std::isnan(loss)) continue;
      sum += loss;
      ++count;
    }
  }
  EXPECT_EQ(count, targets_of(documents));
  EXPECT_NEAR(trainee.evaluate(documents, plan).loss, sum / static_cast<double>(count), 1e-12);
}

TEST_F(Pipelines, A22APipelineWithoutTargets) {
  const DecoderSpec decoder = small_decoder();
  const Documents documents = random_documents({1, 1, 1, 14, 6}, decoder.shape.vocab, 22);
  expect_as_alone(decoder, documents, one_each(documents, {{{0, 1}, {2}}, {{3}, {4}}}));
}

TEST_F(Pipelines, A22ABatchWithoutTargetsChangesNothing) {
  const DecoderSpec decoder = small_decoder();
  const Documents documents = random_documents({1, 1, 1}, decoder.shape.vocab, 22);
  const BatchPlan plan = one_each(documents, {{{0}}, {{1, 2}}});
  Trainee trainee(*mpi_process().world, DataType::f64, decoder, {ranks(), 1, 1});
  const Documents real = random_documents({8, 9}, decoder.shape.vocab, 1);
  trainee.step(real, one_each(real, {{{0}}, {{1}}}), {});  // moments that are not zero
  const auto state = [&] {
    return std::vector{trainee.parameters(), trainee.tensors(trainee.shard().first_moments()),
                       trainee.tensors(trainee.shard().second_moments())};
  };
  const auto before = state();
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::lamb}) {
    UpdateSettings settings;
    settings.optimizer = kind;
    const StepOutcome outcome = trainee.step(documents, plan, settings);
    EXPECT_FALSE(outcome.updated);
    EXPECT_EQ(outcome.targets, 0);
    EXPECT_EQ(outcome.loss, 0);
    EXPECT_EQ(state(), before);
  }
}

}  // namespace
}  // namespace hydraulis::test
