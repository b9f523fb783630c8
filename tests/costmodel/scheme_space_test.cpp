#include "costmodel/scheme_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "costmodel/build_cost_model.h"
#include "tests/costmodel/expect_error.h"

namespace hydraulis {
namespace {

TEST(SchemeSpace, PrintsAndParses) {
  for (const std::string text : {"", "cp", "recompute", "layers", "cp,recompute,layers"}) {
    EXPECT_EQ(to_string(parse_scheme_space(text, "--schemes")), text);
  }
  EXPECT_EQ(to_string(parse_scheme_space("layers,cp", "--schemes")), "cp,layers");
  for (const std::string text : {"tp", "cp,", ",cp", "cp,cp", "cp recompute", " "}) {
    expect_error<InputError>([&] { parse_scheme_space(text, "--schemes"); },
                             {"--schemes", "expected cp, recompute and layers"});
  }
}

CostModel a800(MemoryModel memory, const std::string& space) {
  const ModelSpec model = load_model("llama-32b");
  const ClusterSpec cluster = load_cluster("a800-64");
  return make_cost_model(model, cluster,
                         widened_profile(model, cluster, load_profile("a800-llama-32b"), memory,
                                         parse_scheme_space(space, "test")),
                         memory, {4, 16, 1});
}

TEST(SchemeSpace, RecomputationCostsTimeAndHoldsMore) {
  const CostModel model = a800(MemoryModel::composed, "recompute");
  const Scheme none = parse_scheme("(1,8,2)", "test");
  const Scheme selective = parse_scheme("(1,8,2,recompute=selective)", "test");
  const Scheme full = parse_scheme("(1,8,2,recompute=full)", "test");
  EXPECT_DOUBLE_EQ(stage_cost(model, full, 0)->a, stage_cost(model, none, 0)->a * 4 / 3);
  EXPECT_DOUBLE_EQ(stage_cost(model, selective, 0)->a, stage_cost(model, none, 0)->a);
  // 30 layers; two norms of 6656 numbers read and written, a product of 17920 numbers out of two,
  // all in bf16 on 8 devices with 2039 GB/s.
  const ModelSpec& spec = model.model;
  const double bytes = 2.0 * (4.0 * spec.hidden + 3.0 * spec.ffn_hidden) / 8;
  EXPECT_NEAR(stage_cost(model, selective, 0)->b - stage_cost(model, none, 0)->b,
              30 * bytes / 2039e9, 1e-12);
  EXPECT_LT(max_tokens(model, none), max_tokens(model, selective));
  EXPECT_LT(max_tokens(model, selective), max_tokens(model, full));
}

TEST(SchemeSpace, RingsComeWithRecomputationToo) {
  const CostModel model = a800(MemoryModel::composed, "cp,recompute");
  const Scheme both = parse_scheme("(4,8,1,recompute=full)", "test");
  ASSERT_TRUE(stage_cost(model, both, 0));
  EXPECT_GT(max_tokens(model, both),
            max_tokens(model, parse_scheme("(1,8,1,recompute=full)", "test")));
  EXPECT_FALSE(stage_cost(a800(MemoryModel::composed, "cp"), both, 0));
}

TEST(SchemeSpace, ThePublishedFormulaHasNoRecomputation) {
  expect_error<InputError>([] { a800(MemoryModel::published, "recompute"); },
                           {"recomputation", "--memory-model composed"});
  EXPECT_EQ(a800(MemoryModel::published, "").profile.schemes.size(),
            load_profile("a800-llama-32b").schemes.size());
}

}  // namespace
}  // namespace hydraulis
