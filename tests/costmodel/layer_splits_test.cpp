#include "costmodel/layer_splits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/random.h"
#include "costmodel/build_cost_model.h"

namespace hydraulis {
namespace {

using StageFunction = std::function<double(int, int)>;

/// Every split tried.
double best_of_all(int stages, int layers, const StageFunction& cost, int stage = 0) {
  if (stage == stages - 1) return cost(stage, layers);
  double best = std::numeric_limits<double>::infinity();
  for (int own = 1; own <= layers - (stages - 1 - stage); ++own) {
    best = std::min(best,
                    std::max(cost(stage, own), best_of_all(stages, layers - own, cost, stage + 1)));
  }
  return best;
}

TEST(LayerSplits, BalancedIsTheBestOfAll) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    const int stages = 1 + static_cast<int>(random.below(4));
    const int layers = stages + static_cast<int>(random.below(8));
    std::vector<double> fixed;
    std::vector<double> each;
    for (int stage = 0; stage < stages; ++stage) {
      fixed.push_back(static_cast<double>(random.below(20)));
      each.push_back(static_cast<double>(random.below(5)));
    }
    const StageFunction cost = [&](int stage, int count) {
      return fixed[static_cast<std::size_t>(stage)] +
             each[static_cast<std::size_t>(stage)] * std::pow(count, 1.5);
    };
    const std::vector<int> split = balanced_split(stages, layers, cost);
    int sum = 0;
    double slowest = 0;
    for (int stage = 0; stage < stages; ++stage) {
      EXPECT_GE(split[static_cast<std::size_t>(stage)], 1);
      sum += split[static_cast<std::size_t>(stage)];
      slowest = std::max(slowest, cost(stage, split[static_cast<std::size_t>(stage)]));
    }
    EXPECT_EQ(sum, layers);
    EXPECT_DOUBLE_EQ(slowest, best_of_all(stages, layers, cost));
  }
}

// The first stage of 1F1B has most micro-batches alive, the last one the logits: unequal stages
// hold longer micro-batches, never shorter ones.
TEST(LayerSplits, SplitsByMemoryHoldMore) {
  CostModel model =
      make_cost_model(load_model("llama-32b"), load_cluster("a800-64"),
                      load_profile("a800-llama-32b"), MemoryModel::composed, {4, 16, 1});
  const std::vector<Scheme> before = known_schemes(model);
  add_layer_splits(model);
  std::size_t more = 0;
  for (const Scheme& scheme : known_schemes(model)) {
    if (scheme.layers.empty()) continue;
    Scheme even = scheme;
    even.layers.clear();
    ASSERT_NE(std::ranges::find(before, even), before.end());
    EXPECT_GE(max_tokens(model, scheme), max_tokens(model, even)) << to_string(scheme);
    more += max_tokens(model, scheme) > max_tokens(model, even) ? 1 : 0;
    EXPECT_TRUE(stage_cost(model, scheme, 0));
  }
  EXPECT_GT(more, 3u);
}

}  // namespace
}  // namespace hydraulis
