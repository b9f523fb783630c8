#include <gtest/gtest.h>

#include "costmodel/build_cost_model.h"
#include "costmodel/memory.h"
#include "tests/costmodel/expect_error.h"

namespace hydraulis {
namespace {

CostModel case_study(MemoryModel memory) {
  return make_cost_model(load_model("llama-32b"), load_cluster("a800-64"),
                         load_profile("a800-llama-32b"), memory, {4, 16, 1});
}

Scheme scheme(const std::string& text) { return parse_scheme(text, "test"); }

TEST(StageCost, LooksUpTheProfile) {
  const CostModel model = case_study(MemoryModel::published);
  const auto cost = stage_cost(model, scheme("(1,8,3)"), 2);
  ASSERT_TRUE(cost);
  EXPECT_DOUBLE_EQ(cost->a, 6.85518086e-10);
  EXPECT_NEAR(cost->of(1e6, 1000), 6.85518086e-4 + 0.0482754236 + 0.03806972982, 1e-10);
  EXPECT_FALSE(stage_cost(model, scheme("(2,8,1)"), 0));
  EXPECT_FALSE(stage_cost(model, scheme("(1,8,1,recompute=full)"), 0));
  EXPECT_THROW(stage_cost(model, scheme("(1,8,3)"), 3), InputError);
}

TEST(StageCost, UnevenStagesScaleWithTheirLayers) {
  const CostModel model = case_study(MemoryModel::published);
  const auto even = stage_cost(model, scheme("(1,4,2)"), 0);
  const auto first = stage_cost(model, scheme("(1,4,2,layers=20+40)"), 0);
  const auto second = stage_cost(model, scheme("(1,4,2,layers=20+40)"), 1);
  EXPECT_DOUBLE_EQ(first->b, even->b * 20 / 30);
  EXPECT_DOUBLE_EQ(second->a, even->a * 40 / 30);
  EXPECT_DOUBLE_EQ(first->c + second->c, 2 * even->c);
}

TEST(StageCost, KnownSchemesFitTheCluster) {
  EXPECT_EQ(known_schemes(case_study(MemoryModel::published)).size(), 15u);
  CostModel small = case_study(MemoryModel::published);
  small.cluster = load_cluster("a800-8");
  for (const Scheme& known : known_schemes(small)) EXPECT_LE(known.devices(), 8);
  EXPECT_EQ(known_schemes(small).size(), 8u);
}

// h 8, f 16, 2 heads of 4, 1 KV head, V 32, 2 layers, untied; layout dp2 on 2 devices.
// Layer: q 64, k 32, v 32, o 64, mlp 384, norms 16 = 592. Embedding 256, head 256 + 8.
CostModel tiny() {
  CostModel model;
  model.model = {"tiny", 2, 8, 16, 2, 1, 4, 32, false, false, false};
  model.cluster = load_cluster("a800-2");
  model.memory = MemoryModel::composed;
  model.optimizer = {2, 1, 1};
  return model;
}

TEST(ComposedMemory, ByHandOnOneStage) {
  const StageMemory memory = stage_memory(tiny(), scheme("(1,1,1)"), 0, 100, 100);
  const double parameters = 2 * 592 + 256 + 256 + 8;
  EXPECT_DOUBLE_EQ(parameters, static_cast<double>(parameter_count(tiny().model)));
  EXPECT_DOUBLE_EQ(memory.optimizer, 12 * parameters / 2);
  EXPECT_DOUBLE_EQ(memory.parameters, 2 * parameters);
  EXPECT_DOUBLE_EQ(memory.gradients, 2 * parameters);
  // 8h 64 + 4q 32 + 4kv 16 + 6f 96 + log-sums 8 bytes a token and layer.
  EXPECT_DOUBLE_EQ(memory.activations, 100 * 2 * (64 + 32 + 16 + 96 + 8));
  EXPECT_DOUBLE_EQ(memory.logits, 100 * 32 * 4);
  EXPECT_DOUBLE_EQ(memory.buffers, 0);
}

TEST(ComposedMemory, ByHandOnTwoStages) {
  const CostModel model = tiny();
  const StageMemory first = stage_memory(model, scheme("(1,1,2)"), 0, 200, 100);
  const StageMemory last = stage_memory(model, scheme("(1,1,2)"), 1, 100, 100);
  EXPECT_DOUBLE_EQ(first.parameters, 2 * (592 + 256));
  EXPECT_DOUBLE_EQ(last.parameters, 2 * (592 + 256 + 8));
  EXPECT_DOUBLE_EQ(first.activations, 200 * 216);
  EXPECT_DOUBLE_EQ(first.logits, 0);
  EXPECT_DOUBLE_EQ(last.logits, 100 * 32 * 4);
  EXPECT_DOUBLE_EQ(first.buffers, 2 * 2 * 8 * 100);
  EXPECT_THROW(stage_memory(model, scheme("(1,1,2)"), 2, 1, 1), std::exception);
}

TEST(ComposedMemory, TensorParallelRepeatsKeyValueHeads) {
  // One KV head on two devices: whole on each. Layer: q 32, k 32, v 32, o 32, mlp 192, norms 16.
  EXPECT_DOUBLE_EQ(detail::device_parameters(tiny().model, 2, 1, 0, 2), 2 * 336 + 128 + 128 + 8);
  // An odd vocabulary is padded: 65,535 over 2 is 32,768 rows each.
  ModelSpec odd = tiny().model;
  odd.vocab = 65535;
  EXPECT_DOUBLE_EQ(detail::device_parameters(odd, 2, 1, 0, 2), 2 * 336 + 2 * 32768 * 8 + 8);
  // Tied embeddings: one copy on one stage, two on two.
  odd.tied_embeddings = true;
  EXPECT_DOUBLE_EQ(detail::device_parameters(odd, 2, 1, 0, 2), 2 * 336 + 32768 * 8 + 8);
  EXPECT_DOUBLE_EQ(detail::device_parameters(odd, 2, 2, 1, 1), 336 + 32768 * 8 + 8);
}

TEST(ComposedMemory, RecomputationKeepsLayerInputs) {
  const StageMemory memory = stage_memory(tiny(), scheme("(1,1,1,recompute=full)"), 0, 100, 100);
  EXPECT_DOUBLE_EQ(memory.activations, 100 * 2 * 16 + 100 * 216);
  const StageMemory some = stage_memory(tiny(), scheme("(1,1,1,recompute=selective)"), 0, 100, 100);
  EXPECT_DOUBLE_EQ(some.activations, 100 * 2 * (216 - 32 - 32));
}

TEST(ComposedMemory, LogitsOfLargeVocabularies) {
  CostModel model = tiny();
  model.model.vocab = 152064;
  const double gib = 1024.0 * 1024 * 1024;
  EXPECT_DOUBLE_EQ(stage_memory(model, scheme("(1,2,1)"), 0, 9216, 9216).logits,
                   9216.0 * 76032 * 4);
  EXPECT_NEAR(stage_memory(model, scheme("(1,2,1)"), 0, 205302, 205302).logits / gib, 58.15, 0.005);
  model.model.vocab = 128256;
  EXPECT_NEAR(stage_memory(model, scheme("(1,1,1)"), 0, 32768, 32768).logits / gib, 15.66, 0.005);
}

TEST(ComposedMemory, MicroBatchesInFlight) {
  const Scheme four = scheme("(1,1,4)");
  EXPECT_EQ(detail::live_micro_batches(four, 0, 0), 4);
  EXPECT_EQ(detail::live_micro_batches(four, 3, 0), 1);
  EXPECT_EQ(detail::live_micro_batches(four, 0, 2), 2);
  EXPECT_EQ(detail::live_micro_batches(four, 3, 2), 1);
  EXPECT_EQ(detail::live_micro_batches(four, 3, 7), 7);  // GPipe
  const CostModel model = case_study(MemoryModel::composed);
  const Scheme pipeline = scheme("(1,8,4)");
  EXPECT_GT(max_tokens(model, pipeline, 1), max_tokens(model, pipeline));
  EXPECT_LT(max_tokens(model, pipeline, 16), max_tokens(model, pipeline));
}

// The longest micro-batch really is the longest, in steps of 128.
TEST(ComposedMemory, MaxTokensIsTight) {
  const CostModel model = case_study(MemoryModel::composed);
  for (const Scheme& known : known_schemes(model)) {
    for (const int in_flight : {0, 1, 9}) {
      const std::int64_t tokens = max_tokens(model, known, in_flight);
      EXPECT_EQ(tokens % 128, 0);
      const double limit = memory_limit_bytes(model);
      if (tokens > 0) {
        EXPECT_LE(required_bytes(model, known, static_cast<double>(tokens), in_flight), limit);
      }
      EXPECT_GT(required_bytes(model, known, static_cast<double>(tokens + 128), in_flight), limit);
    }
  }
}

// Two independent roads to the same memory: the authors' fitted formula and the composition.
TEST(ComposedMemory, AgreesWithThePublishedTable) {
  const CostModel composed = case_study(MemoryModel::composed);
  const CostModel published = case_study(MemoryModel::published);
  for (const Scheme& known : known_schemes(published)) {
    const auto theirs = static_cast<double>(max_tokens(published, known));
    const auto ours = static_cast<double>(max_tokens(composed, known));
    EXPECT_NEAR(ours, theirs, 0.07 * theirs + 128) << to_string(known);
  }
}

TEST(ComposedMemory, ContextParallelismSplitsTokens) {
  const CostModel model = tiny();
  const StageMemory one = stage_memory(model, scheme("(1,1,1)"), 0, 100, 100);
  const StageMemory two = stage_memory(model, scheme("(2,1,1)"), 0, 200, 200);
  EXPECT_DOUBLE_EQ(one.activations, two.activations);
  EXPECT_DOUBLE_EQ(one.logits, two.logits);
  EXPECT_DOUBLE_EQ(two.buffers, 2 * 2 * 2 * 1 * 4 * 100);
}

}  // namespace
}  // namespace hydraulis
