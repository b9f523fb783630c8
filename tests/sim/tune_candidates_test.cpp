#include "sim/tune_candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "costmodel/build_cost_model.h"

namespace hydraulis {
namespace {

Scheme scheme(int cp, int tp, int pp) { return {cp, tp, pp, Recompute::none, {}}; }

std::set<std::string> names(const std::vector<Strategy>& strategies) {
  std::set<std::string> result;
  for (const Strategy& strategy : strategies) result.insert(to_string(strategy));
  return result;
}

TEST(TuneCandidates, NeighboursSplitMergeAndSwapPipelines) {
  const Strategy strategy = parse_strategies("(1,16,1)+2x(1,8,1)", "test").front();
  const Scheme in[] = {scheme(1, 16, 1), scheme(1, 8, 1), scheme(1, 4, 2), scheme(1, 4, 1)};
  const std::set<std::string> expected = {"4x(1,8,1)",                   // TP16 split
                                          "2x(1,16,1)",                  // both TP8 merged
                                          "2x(1,8,1)+2x(1,4,2)",         // TP16 split differently
                                          "2x(1,8,1)+4x(1,4,1)",         // and again
                                          "(1,16,1)+(1,8,1)+(1,4,2)",    // one TP8 swapped
                                          "(1,16,1)+2x(1,4,2)",          // both
                                          "(1,16,1)+(1,8,1)+2x(1,4,1)",  // one TP8 split
                                          "(1,16,1)+4x(1,4,1)"};
  EXPECT_EQ(names(neighbours(strategy, in)), expected);
  for (const Strategy& next : neighbours(strategy, in)) EXPECT_EQ(devices(next), 32);
}

TEST(TuneCandidates, EveryCandidateUsesTheWholeClusterAndNoneComesTwice) {
  const ModelSpec model = load_model("llama-13b");
  const ClusterSpec cluster = load_cluster("a800-16");
  TunePoolRequest request;
  request.model = make_cost_model(model, cluster, default_profile(model, cluster),
                                  MemoryModel::published, {2, 8, 1});
  request.context = 16384;
  request.tokens_per_batch = 60000;
  request.shortest_reach = 8000;
  LengthTrace trace;
  for (std::uint32_t i = 0; i < 500; ++i) trace.lengths.push_back(64 + (i * 7919) % 12000);
  std::set<Strategy> sorted;
  const std::vector<Strategy> candidates = candidate_strategies(trace, request);
  for (Strategy strategy : candidates) {
    EXPECT_EQ(devices(strategy), 16) << to_string(strategy);
    std::sort(strategy.begin(), strategy.end());
    EXPECT_TRUE(sorted.insert(strategy).second) << to_string(strategy);
  }
  // Every homogeneous strategy that has room for a token.
  const std::set<std::string> known = names(candidates);
  for (const SchemeOption& option : scheme_options(request.model)) {
    if (option.max_tokens <= 0 || 16 % option.scheme.devices() != 0) continue;
    const Strategy homogeneous(static_cast<std::size_t>(16 / option.scheme.devices()),
                               option.scheme);
    EXPECT_TRUE(known.contains(to_string(homogeneous))) << to_string(homogeneous);
  }
}

TEST(TuneCandidates, LayoutsUseEveryDeviceOnce) {
  const ModelSpec model = load_model("llama-13b");
  const ClusterSpec cluster = load_cluster("a800-16");
  const CostModel cost = make_cost_model(model, cluster, default_profile(model, cluster),
                                         MemoryModel::published, {2, 8, 1});
  std::set<std::pair<int, int>> seen;
  for (const OptimizerLayout& layout : optimizer_layouts(cost)) {
    EXPECT_EQ(layout.devices(), 16);
    EXPECT_TRUE(seen.insert({layout.tp, layout.pp}).second);
  }
  EXPECT_TRUE(seen.contains({1, 1}));
  EXPECT_TRUE(seen.contains({8, 1}));
  EXPECT_TRUE(seen.contains({2, 8}));
}

}  // namespace
}  // namespace hydraulis
