// Tied embeddings, micro-batches, heads and layers on the layouts they are about.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/training_cases.h"

namespace hydraulis::test {
namespace {

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

}  // namespace
}  // namespace hydraulis::test
