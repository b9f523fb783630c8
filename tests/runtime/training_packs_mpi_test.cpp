// Documents in packs and batches that nothing divides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/training_cases.h"

namespace hydraulis::test {
namespace {

using PackOn = OnLayouts;

TEST_P(PackOn, A16TheSameDocumentTwiceHasTheSameLosses) {
  const DecoderSpec decoder = small_decoder();
  Documents documents = random_documents({20}, decoder.shape.vocab, 16);
  documents.push_back(documents[0]);
  Trainee trainee(*mpi_process().world, DataType::f64, decoder,
                  {mpi_process().world->size(), 1, 1});
  const auto losses = trainee.token_losses(documents, plan(documents));
  for (int i = 0; i < 19; ++i) {
    EXPECT_NEAR(losses[1][i], losses[0][i], 1e-12 * losses[0][i]) << "token " << i;
  }
  EXPECT_TRUE(std::isnan(losses[0][19]));
  EXPECT_TRUE(std::isnan(losses[1][19]));
}

TEST_P(PackOn, A18AChangedTokenChangesItsOwnDocumentAlone) {
  const DecoderSpec decoder = small_decoder();
  Documents documents = random_documents({20, 20, 9}, decoder.shape.vocab, 18);
  documents[1] = documents[0];
  Trainee trainee(*mpi_process().world, DataType::f64, decoder,
                  {mpi_process().world->size(), 1, 1});
  const auto before = trainee.token_losses(documents, plan(documents));
  documents[0][3] = (documents[0][3] + 1) % decoder.shape.vocab;
  const auto after = trainee.token_losses(documents, plan(documents));
  // Losses are of the next token: token 2 predicts the changed one, those from it on see it.
  for (int i = 0; i < 19; ++i) {
    const double change = std::abs(after[0][i] - before[0][i]);
    if (i < 2) {
      EXPECT_LE(change, 1e-12) << "token " << i;
    } else {
      EXPECT_GT(change, 1e-7) << "token " << i;
    }
  }
  for (const std::size_t document : {1, 2}) {
    for (std::size_t i = 0; i + 1 < documents[document].size(); ++i) {
      EXPECT_NEAR(after[document][i], before[document][i], 1e-12)
          << "document " << document << ", token " << i;
    }
  }
}

TEST_P(PackOn, A19NoDocumentPredictsTheNext) {
  const DecoderSpec decoder = small_decoder();
  const Documents documents = random_documents({4, 3}, decoder.shape.vocab, 19);
  const Measured packed = measure(*mpi_process().world, decoder, documents, plan(documents));
  EXPECT_EQ(packed.outcome.targets, 5);
  const BatchPlan apart = assign(documents, {{scheme(1, 1, 1), {{0}, {1}}}});
  const Measured unpacked = measure(alone(), decoder, documents, apart);
  EXPECT_EQ(unpacked.outcome.targets, 5);
  EXPECT_NEAR(packed.outcome.loss, unpacked.outcome.loss, kExact);
  expect_same_gradients(packed, unpacked, kExact);
}

TEST_P(PackOn, A12A13A15LengthsThatNothingDivides) {
  const DecoderSpec decoder = small_decoder();
  for (const std::vector<int>& lengths :
       {std::vector<int>{7}, {4, 8, 6, 10}, {1001}, {1, 1, 1, 2}}) {
    const Documents documents = random_documents(lengths, decoder.shape.vocab, 12);
    SCOPED_TRACE("first length " + std::to_string(lengths[0]));
    expect_as_alone(decoder, documents, plan(documents));
  }
}

TEST_P(PackOn, A23EmptySequencesAndSequencesOfOneToken) {
  const DecoderSpec decoder = small_decoder();  // 8 query heads on 2 key/value heads
  const std::vector<int> lengths = read_lengths("zeros_and_ones.txt");
  const Documents given = random_documents(lengths, decoder.shape.vocab, 23);
  expect_as_alone(decoder, given, plan(given));
  const Documents mixed = random_documents({0, 1, 12, 0, 5, 1, 0}, decoder.shape.vocab, 24);
  expect_as_alone(decoder, mixed, plan(mixed));
  // Without any target there is nothing to learn and nothing breaks.
  for (const std::vector<int>& none : {std::vector<int>{0, 1, 0, 1, 1}, {0, 0}, {1}}) {
    const Documents documents = random_documents(none, decoder.shape.vocab, 25);
    const Measured measured = measure(*mpi_process().world, decoder, documents, plan(documents));
    EXPECT_EQ(measured.outcome.targets, 0);
    EXPECT_EQ(measured.outcome.loss, 0);
    for (const auto& [name, gradient] : measured.gradients) EXPECT_EQ(norm(gradient), 0) << name;
  }
}

TEST_P(PackOn, A35AVocabularyThatNothingDivides) {
  DecoderSpec decoder = config("vocab_65535_tp2.json");
  ASSERT_EQ(decoder.shape.vocab, 65535);
  decoder.shape.hidden = 8;
  decoder.shape.layers = 4;
  decoder.shape.ffn_hidden = 8;
  decoder.shape.head_dim = 2;
  const Documents documents = random_documents({5, 3}, decoder.shape.vocab, 35);
  Documents highest = documents;
  highest[0][2] = 65534;  // the last real row, next to the padding
  expect_as_alone(decoder, highest, plan(highest));
}

INSTANTIATE_TEST_SUITE_P(Layouts, PackOn, testing::ValuesIn(layouts_here(every_kind())),
                         layout_name);

using BatchOn = OnLayouts;

TEST_P(BatchOn, A21TokensCountOnceWhateverTheGroups) {
  const DecoderSpec decoder = small_decoder();
  const Documents documents =
      random_documents({17, 9, 30, 4, 2, 21, 8, 13}, decoder.shape.vocab, 21);
  expect_as_alone(decoder, documents, plan(documents));
  UpdateSettings settings;
  settings.clip_norm = 1.0;
  Trainee all(*mpi_process().world, DataType::f64, decoder, {mpi_process().world->size(), 1, 1});
  Trainee one(alone(), DataType::f64, decoder, {});
  const StepOutcome together = all.step(documents, plan(documents), settings);
  const StepOutcome single = one.step(documents, one_pack(documents), settings);
  EXPECT_NEAR(together.gradient_norm, single.gradient_norm, kExact * single.gradient_norm);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, BatchOn,
    testing::ValuesIn(layouts_here({{"single", {{scheme(1, 1, 1)}, 3, {}}},
                                    {"dp2", {{scheme(1, 1, 1), scheme(1, 1, 1)}, 2, {}}},
                                    {"dp4", {std::vector<Scheme>(4, scheme(1, 1, 1)), 1, {}}},
                                    {"dp2_cp2", {{scheme(2, 1, 1), scheme(2, 1, 1)}, 2, {}}},
                                    {"dp2_tp2", {{scheme(1, 2, 1), scheme(1, 2, 1)}, 2, {}}},
                                    {"pp4", {{scheme(1, 1, 4)}, 2, {}}},
                                    {"dp4_cp2", {std::vector<Scheme>(4, scheme(2, 1, 1)), 1, {}}},
                                    {"dp2_tp2_cp2", {{scheme(2, 2, 1), scheme(2, 2, 1)}, 1, {}}}})),
    layout_name);

}  // namespace
}  // namespace hydraulis::test
