#include <gtest/gtest.h>

#include "costmodel/cost_model.h"

namespace hydraulis {
namespace {

CostModel preset(const std::string& name, OptimizerLayout layout, const std::string& cluster) {
  CostModel model;
  model.model = load_model(name);
  model.cluster = load_cluster(cluster);
  model.profile = load_profile("a800-" + name);
  model.memory = MemoryModel::published;
  model.optimizer = layout;
  return model;
}

Scheme scheme(int tp, int pp) {
  Scheme result;
  result.tp = tp;
  result.pp = pp;
  return result;
}

struct Row {
  int tp;
  int pp;
  std::int64_t tokens;
};

void expect_table(const CostModel& model, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    EXPECT_EQ(max_tokens(model, scheme(row.tp, row.pp)), row.tokens)
        << "(" << row.tp << "," << row.pp << ")";
  }
}

// The published tables of longest micro-batches.
TEST(PublishedMemory, Llama32bOn64) {
  expect_table(preset("llama-32b", {4, 16, 1}, "a800-64"), {{1, 4, 1920},
                                                            {2, 2, 3968},
                                                            {2, 4, 6272},
                                                            {4, 1, 7808},
                                                            {4, 2, 12416},
                                                            {8, 1, 21888},
                                                            {8, 2, 25856},
                                                            {8, 3, 27264},
                                                            {8, 4, 27904},
                                                            {16, 1, 43520},
                                                            {1, 2, 0},
                                                            {2, 1, 0}});
}

TEST(PublishedMemory, Llama32bOn1024) {
  expect_table(preset("llama-32b", {64, 16, 1}, "a800-1024"),
               {{4, 1, 9472}, {4, 4, 16256}, {8, 1, 24704}, {16, 1, 48256}});
}

TEST(PublishedMemory, Llama13b) {
  expect_table(preset("llama-13b", {8, 4, 1}, "a800-32"), {{1, 1, 1152},
                                                           {1, 2, 4864},
                                                           {1, 4, 6528},
                                                           {2, 1, 9472},
                                                           {2, 2, 12928},
                                                           {4, 1, 25984},
                                                           {4, 2, 29568},
                                                           {8, 1, 48000}});
}

TEST(PublishedMemory, Llama7b) {
  expect_table(preset("llama-7b", {8, 4, 1}, "a800-32"),
               {{1, 2, 11264}, {2, 1, 21888}, {4, 1, 46080}, {8, 1, 85248}, {16, 1, 137984}});
}

TEST(PublishedMemory, RequiredBytesMeetTheLimit) {
  const CostModel model = preset("llama-32b", {4, 16, 1}, "a800-64");
  for (const Scheme& known : known_schemes(model)) {
    const auto tokens = static_cast<double>(max_tokens(model, known));
    if (tokens > 0) {
      EXPECT_LE(required_bytes(model, known, tokens), memory_limit_bytes(model));
    }
    EXPECT_GT(required_bytes(model, known, tokens + 128), memory_limit_bytes(model));
  }
}

TEST(PublishedMemory, InFlightIsIgnored) {
  const CostModel model = preset("llama-32b", {4, 16, 1}, "a800-64");
  EXPECT_EQ(max_tokens(model, scheme(4, 2), 1), 12416);
}

TEST(PublishedMemory, WithoutConstantsNothingFits) {
  const CostModel model = preset("llama-32b", {4, 16, 1}, "a800-64");
  EXPECT_EQ(max_tokens(model, scheme(32, 1)), 0);
  Scheme recomputing = scheme(16, 1);
  recomputing.recompute = Recompute::full;
  EXPECT_EQ(max_tokens(model, recomputing), 0);
}

}  // namespace
}  // namespace hydraulis
