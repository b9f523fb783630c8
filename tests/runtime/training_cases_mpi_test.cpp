// Cases of batches, packs and layouts that went wrong elsewhere (numbers of the project's case
// list), each against the same batch on one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>

#include "runtime/hugging_face.h"
#include "tests/runtime/training_run.h"

namespace hydraulis::test {
namespace {

constexpr double kExact = 1e-11;

struct Measured {
  StepOutcome outcome;
  std::map<std::string, std::vector<double>> gradients;
};

Measured measure(Communicator& world, const DecoderSpec& decoder, const Documents& documents,
                 const BatchPlan& plan, DataType type = DataType::f64) {
  OptimizerLayout optimizer;
  optimizer.dp = world.size();
  Trainee trainee(world, type, decoder, optimizer);
  Measured measured;
  measured.outcome = trainee.accumulate(documents, plan);
  measured.gradients = trainee.gradients();
  return measured;
}

/// All documents in one micro-batch on one device.
BatchPlan one_pack(const Documents& documents) {
  return deal(documents, {{scheme(1, 1, 1)}, 1, {}});
}

std::int64_t targets_of(const Documents& documents) {
  std::int64_t targets = 0;
  for (const auto& document : documents) {
    targets += std::max<std::int64_t>(0, static_cast<std::int64_t>(document.size()) - 1);
  }
  return targets;
}

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

/// Every gradient within the tolerance, relative to its own norm, or to a thousandth of the largest
/// one's where it is next to nothing (queries and keys when all that is learnt from attends to
/// itself alone).
void expect_same_gradients(const Measured& all, const Measured& one, double tolerance) {
  double largest = 0;
  for (const auto& [name, gradient] : one.gradients) largest = std::max(largest, norm(gradient));
  for (const auto& [name, gradient] : one.gradients) {
    std::vector<double> difference = all.gradients.at(name);
    for (std::size_t i = 0; i < gradient.size(); ++i) difference[i] -= gradient[i];
    EXPECT_LE(norm(difference), tolerance * std::max(norm(gradient), 1e-3 * largest)) << name;
  }
}

/// Loss, targets and every gradient of the plan are one device's.
void expect_as_alone(const DecoderSpec& decoder, const Documents& documents, const BatchPlan& plan,
                     DataType type = DataType::f64, double tolerance = kExact) {
  const Measured all = measure(*mpi_process().world, decoder, documents, plan, type);
  const Measured one = measure(alone(), decoder, documents, one_pack(documents), type);
  EXPECT_EQ(all.outcome.targets, targets_of(documents));
  EXPECT_EQ(one.outcome.targets, all.outcome.targets);
  EXPECT_NEAR(all.outcome.loss, one.outcome.loss, tolerance * one.outcome.loss);
  expect_same_gradients(all, one, tolerance);
}

std::vector<int> read_lengths(const std::string& name) {
  std::ifstream file(std::string(HYDRAULIS_TEST_DATA "/lengths/") + name);
  std::vector<int> lengths;
  for (int length = 0; file >> length;) lengths.push_back(length);
  EXPECT_FALSE(lengths.empty()) << name;
  return lengths;
}

DecoderSpec config(const std::string& name) {
  return load_decoder(std::string(HYDRAULIS_TEST_DATA "/hf_configs/") + name);
}

// A case on the layouts that it is about, as far as there are ranks for them.
class OnLayouts : public testing::TestWithParam<NamedLayout> {
 protected:
  BatchPlan plan(const Documents& documents) const { return deal(documents, GetParam().layout); }
};

const std::vector<NamedLayout>& every_kind() {
  static const std::vector<NamedLayout> all = {
      {"single", {{scheme(1, 1, 1)}, 1, {}}},  {"tp2", {{scheme(1, 2, 1)}, 1, {}}},
      {"pp2", {{scheme(1, 1, 2)}, 1, {}}},     {"cp2", {{scheme(2, 1, 1)}, 1, {}}},
      {"tp4", {{scheme(1, 4, 1)}, 1, {}}},     {"cp4", {{scheme(4, 1, 1)}, 1, {}}},
      {"pp4", {{scheme(1, 1, 4)}, 1, {}}},     {"cp2_tp2", {{scheme(2, 2, 1)}, 1, {}}},
      {"cp2_pp2", {{scheme(2, 1, 2)}, 1, {}}}, {"cp2_tp2_pp2", {{scheme(2, 2, 2)}, 1, {}}},
      {"cp4_tp2", {{scheme(4, 2, 1)}, 1, {}}},
  };
  return all;
}

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

using TiedOn = OnLayouts;

TEST_P(TiedOn, A30TheGradientNormCountsEveryWeightOnce) {
  for (const bool tied : {true, false}) {
    DecoderSpec decoder = small_decoder();
    decoder.shape.tied_embeddings = tied;
    const Documents documents = random_documents({17, 9, 30, 4}, decoder.shape.vocab, 30);
    UpdateSettings settings;
    settings.clip_norm = 1.0;
    settings.learning_rate = 1e-2;
    Trainee all(*mpi_process().world, DataType::f64, decoder, {mpi_process().world->size(), 1, 1});
    Trainee one(alone(), DataType::f64, decoder, {});
    for (int step = 0; step < 3; ++step) {
      const StepOutcome together = all.step(documents, plan(documents), settings);
      const StepOutcome single = one.step(documents, one_pack(documents), settings);
      EXPECT_NEAR(together.gradient_norm, single.gradient_norm, kExact * single.gradient_norm);
      EXPECT_NEAR(together.loss, single.loss, kExact * single.loss);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, TiedOn,
                         testing::ValuesIn(layouts_here({{"single", {{scheme(1, 1, 1)}, 1, {}}},
                                                         {"pp2", {{scheme(1, 1, 2)}, 2, {}}},
                                                         {"tp2", {{scheme(1, 2, 1)}, 1, {}}},
                                                         {"tp2_pp2", {{scheme(1, 2, 2)}, 2, {}}},
                                                         {"tp4", {{scheme(1, 4, 1)}, 1, {}}},
                                                         {"cp2_tp2_pp2",
                                                          {{scheme(2, 2, 2)}, 2, {}}}})),
                         layout_name);

using PipelineOn = OnLayouts;
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PipelineOn);  // on other numbers of ranks

TEST_P(PipelineOn, A32A33EveryNumberOfMicroBatchesOfUnlikeLengths) {
  DecoderSpec decoder = small_decoder();
  decoder.shape.layers = std::max(decoder.shape.layers, GetParam().layout.schemes[0].pp);
  for (const int micro_batches : {1, 2, 3, 5}) {
    SCOPED_TRACE(micro_batches);
    Layout layout = GetParam().layout;
    layout.micro_batches = micro_batches;
    const Documents documents =
        random_documents({19, 3, 11, 7, 26, 2, 14, 5, 1, 8}, decoder.shape.vocab, 32);
    expect_as_alone(decoder, documents, deal(documents, layout));
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, PipelineOn,
                         testing::ValuesIn(layouts_here({{"pp2", {{scheme(1, 1, 2)}, 1, {}}},
                                                         {"pp4", {{scheme(1, 1, 4)}, 1, {}}},
                                                         {"tp2_pp2", {{scheme(1, 2, 2)}, 1, {}}},
                                                         {"tp2_pp4", {{scheme(1, 2, 4)}, 1, {}}},
                                                         {"pp8", {{scheme(1, 1, 8)}, 1, {}}}})),
                         layout_name);

using ConfigOn = OnLayouts;
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ConfigOn);  // on other numbers of ranks

TEST_P(ConfigOn, A27FewerKeyValueHeadsThanRanks) {
  const DecoderSpec decoder = config("tiny_ok.json");
  ASSERT_EQ(decoder.shape.kv_heads, 2);
  const Documents documents = random_documents({9, 14, 3}, decoder.shape.vocab, 27);
  expect_as_alone(decoder, documents, plan(documents));
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, ConfigOn,
    testing::ValuesIn(layouts_here({{"tp4", {{scheme(1, 4, 1)}, 2, {}}},
                                    {"tp4_dp2", {{scheme(1, 4, 1), scheme(1, 4, 1)}, 1, {}}}})),
    layout_name);

using LayersOn = OnLayouts;
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LayersOn);  // on other numbers of ranks

TEST_P(LayersOn, A34ThirtyLayersOnFourStagesAreThirty) {
  const DecoderSpec decoder = config("layers_30.json");
  ASSERT_EQ(decoder.shape.layers, 30);
  const Documents documents = random_documents({6, 9}, decoder.shape.vocab, 34);
  const BatchPlan batch = plan(documents);
  const Program program = lowered(batch, decoder, {4, 1, 1}, 4);
  std::vector<int> layers;
  std::vector<int> counts;
  for (const Stage& stage : program.stages) {
    counts.push_back(stage.layer_end - stage.layer_begin);
    for (int layer = stage.layer_begin; layer < stage.layer_end; ++layer) layers.push_back(layer);
  }
  EXPECT_THAT(counts, testing::ElementsAre(8, 8, 7, 7));
  std::vector<int> once(30);
  for (int layer = 0; layer < 30; ++layer) once[layer] = layer;
  EXPECT_EQ(layers, once);
  expect_as_alone(decoder, documents, batch);
}

INSTANTIATE_TEST_SUITE_P(Layouts, LayersOn,
                         testing::ValuesIn(layouts_here({{"pp4", {{scheme(1, 1, 4)}, 2, {}}}})),
                         layout_name);

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

TEST(StageCopies, A29AreTheMastersBitForBitAfterFiveSteps) {
  Communicator& world = *mpi_process().world;
  const int ranks = world.size();
  const DecoderSpec decoder = small_decoder();
  Trainee trainee(world, DataType::f32, decoder, {ranks, 1, 1});
  const int tp = std::min(ranks, 4);
  const Layout layout{std::vector<Scheme>(ranks / tp, scheme(1, tp, 1)), 1, {}};
  const Documents documents = random_documents({17, 9, 30, 4}, decoder.shape.vocab, 29);
  for (int step = 0; step < 5; ++step) trainee.step(documents, layout, {});
  const auto masters = trainee.parameters();

  const Program program = trainee.program_of(deal(documents, layout));
  const int rank = world.rank();
  const Stage* stage = nullptr;
  int tensor_rank = 0;
  for (const Stage& candidate : program.stages) {
    const auto found = std::find(candidate.devices.begin(), candidate.devices.end(), rank);
    if (found == candidate.devices.end()) continue;
    stage = &candidate;
    tensor_rank = static_cast<int>(found - candidate.devices.begin()) % tp;
  }
  ASSERT_NE(stage, nullptr);
  const RankTransfers transfers = rank_transfers(decoder.shape, program, rank);
  StageParameters copies(trainee.backend(), trainee.backend().type, decoder.shape, *stage, tp,
                         tensor_rank);
  StageParameters unused(trainee.backend(), trainee.backend().type, decoder.shape, *stage, tp,
                         tensor_rank);
  ParameterFlow flow(trainee.backend(), trainee.shard(), transfers, &copies, &unused);
  flow.start_gather();
  const auto stream = trainee.backend().device->make_stream();
  for (const int layer : copies.layers()) flow.wait_for_layer(layer, *stream);
  trainee.backend().device->synchronize(*stream);
  world.barrier();
  std::int64_t checked = 0;
  std::int64_t norms = 0;
  for (const LogicalTensor& tensor : logical_tensors(decoder.shape)) {
    ASSERT_TRUE(copies.holds(tensor.layer, tensor.kind)) << tensor.name;
    const TensorSlot* slot = copies.slots(tensor.layer).find(tensor.kind);
    std::vector<float> held(slot->end - slot->begin);
    trainee.backend().device->copy_to_host(
        held.data(), copies.address(tensor.layer, tensor.kind, slot->begin),
        static_cast<std::int64_t>(held.size() * sizeof(float)), *stream);
    trainee.backend().device->synchronize(*stream);
    for (std::size_t i = 0; i < held.size(); ++i) {
      ASSERT_EQ(held[i], static_cast<float>(masters.at(tensor.name)[slot->begin + i]))
          << tensor.name << ", element " << slot->begin + i;
    }
    checked += static_cast<std::int64_t>(held.size());
    if (tensor.shape.size() == 1) {
      EXPECT_EQ(slot->begin, 0);
      EXPECT_EQ(slot->end, tensor.elements());  // norms are whole on every rank
      ++norms;
    }
  }
  EXPECT_EQ(norms, 2 * 4 + 1);
  EXPECT_GT(checked, parameter_count(decoder.shape) / tp - 1);
}

DecoderSpec tiniest_decoder() {
  DecoderSpec decoder;
  decoder.shape = {"tiniest", 1, 4, 4, 2, 1, 2, 5, false, false, false};
  decoder.initializer_range = 0.3;
  return decoder;
}

using OneDevice = OnLayouts;
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OneDevice);

TEST_P(OneDevice, A24EightyThousandSequencesInOnePack) {
  const DecoderSpec decoder = tiniest_decoder();
  constexpr int kSequences = 80'000;
  // Sixteen different sequences over and over: the pack's mean loss and gradients are theirs.
  const Documents sixteen = random_documents(std::vector<int>(16, 16), decoder.shape.vocab, 24);
  Documents documents;
  for (int i = 0; i < kSequences; ++i) documents.push_back(sixteen[i % 16]);
  const Measured many = measure(alone(), decoder, documents, one_pack(documents), DataType::f32);
  const Measured few = measure(alone(), decoder, sixteen, one_pack(sixteen), DataType::f32);
  EXPECT_EQ(many.outcome.targets, std::int64_t{kSequences} * 15);
  EXPECT_NEAR(many.outcome.loss, few.outcome.loss, 1e-5 * few.outcome.loss);
  for (const auto& [name, gradient] : few.gradients) {
    std::vector<double> scaled = gradient;
    for (double& g : scaled) g *= kSequences / 16;
    EXPECT_LE(relative_difference(many.gradients.at(name), scaled), 1e-3) << name;
  }
}

TEST_P(OneDevice, C04MemoryIsSteadyOverLengthsThatVary) {
  const DecoderSpec decoder = tiniest_decoder();
  Trainee trainee(alone(), DataType::f32, decoder, {});
  Random random(4);
  constexpr std::int64_t kCap = 1000;
  const auto batch_near_the_cap = [&] {
    std::vector<int> lengths;
    for (std::int64_t left = kCap * 95 / 100; left > 0;) {
      const auto length = static_cast<std::int64_t>(1 + random.below(left));
      lengths.push_back(static_cast<int>(length));
      left -= length;
    }
    return random_documents(lengths, decoder.shape.vocab, random.below(1000));
  };
  Device& device = *mpi_process().device;
  std::int64_t allocated = 0;
  std::int64_t reserved = 0;
  for (int step = 0; step < 200; ++step) {
    const Documents documents = batch_near_the_cap();
    trainee.step(documents, one_pack(documents), {});
    const DeviceMemory memory = device.memory();
    if (step == 20) {
      allocated = memory.allocated;
      reserved = memory.reserved;
    } else if (step > 20) {
      ASSERT_EQ(memory.allocated, allocated) << "step " << step;
      ASSERT_EQ(memory.reserved, reserved) << "step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, OneDevice,
                         testing::ValuesIn(layouts_here({{"single", {{scheme(1, 1, 1)}, 1, {}}}})),
                         layout_name);

}  // namespace
}  // namespace hydraulis::test
