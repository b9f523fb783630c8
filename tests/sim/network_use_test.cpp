// When replays share links, by the cluster and the option.
#include <gtest/gtest.h>

#include "base/error.h"
#include "sim/costing.h"
#include "sim/iterations.h"
#include "tests/sim/small_model.h"

namespace hydraulis {
namespace {

bool shares(const CostModel& model, NetworkUse use) {
  CostingOptions options;
  options.network = use;
  EXPECT_EQ(replay_options(model, options).network != nullptr,
            shares_links(model.cluster, options));
  return shares_links(model.cluster, options);
}

bool says_shared(const CostModel& model, NetworkUse use) {
  CostingOptions options;
  options.network = use;
  for (const std::string& line : costing_assumptions(model, options)) {
    if (line.find("shared by the flows") != std::string::npos) return true;
    if (line.find("without contention") != std::string::npos) return false;
  }
  return false;
}

TEST(NetworkUse, AutomaticWhereThereIsSomethingToShare) {
  const CostModel flat = testing::small_model();
  CostModel levels = flat;
  levels.cluster.levels = {{"leaf", 1, 2, 0}};
  CostModel cards = flat;
  cards.cluster.network_cards_per_node = 2;
  CostModel fast_cards = cards;  // half as many, twice as fast
  fast_cards.cluster.network_card_bytes_per_second =
      2 * flat.cluster.inter_node.bandwidth_bytes_per_second;
  CostModel inside = flat;
  inside.cluster.node_inside_bytes_per_second = 1e6;
  CostModel cores = levels;
  cores.cluster.cores_per_node = 4;
  for (const auto& [model, automatic] : {std::pair{flat, false},
                                         {levels, true},
                                         {cards, true},
                                         {fast_cards, false},
                                         {inside, true}}) {
    EXPECT_EQ(shares(model, NetworkUse::automatic), automatic);
    EXPECT_EQ(says_shared(model, NetworkUse::automatic), automatic);
    EXPECT_TRUE(shares(model, NetworkUse::flows));
    EXPECT_TRUE(says_shared(model, NetworkUse::flows));
    EXPECT_FALSE(shares(model, NetworkUse::closed_form));
    EXPECT_FALSE(says_shared(model, NetworkUse::closed_form));
  }
  // Devices that are processes share cores instead.
  EXPECT_FALSE(shares(cores, NetworkUse::flows));
  EXPECT_FALSE(says_shared(cores, NetworkUse::flows));
  CostingOptions quiet;
  quiet.no_communication = true;
  EXPECT_EQ(replay_options(levels, quiet).network, nullptr);
  EXPECT_EQ(replay_options(cores, quiet).cores_per_node, 0);
  EXPECT_EQ(replay_options(cores, {}).cores_per_node, 4);
}

TEST(NetworkUse, Names) {
  for (const NetworkUse use : {NetworkUse::automatic, NetworkUse::closed_form, NetworkUse::flows}) {
    EXPECT_EQ(parse_network_use(to_string(use), "x"), use);
  }
  EXPECT_THROW(parse_network_use("packets", "--network"), InputError);
  EXPECT_THROW(parse_network_use("", "--network"), InputError);
}

// Flows of one iteration know nothing of other iterations, on any number of threads.
TEST(NetworkUse, ThreadsGiveTheSameTimes) {
  CostModel model = testing::small_model();
  model.cluster.network_cards_per_node = 1;
  model.cluster.network_card_bytes_per_second = 1e6;
  std::vector<BatchPlan> plans(6);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const auto tokens = static_cast<std::uint32_t>(100 * (i + 1));
    plans[i].pipelines = {testing::pipeline_of(1, 2, {{tokens, 50}, {300}}),
                          testing::pipeline_of(2, 1, {{tokens}}),
                          testing::pipeline_of(1, 4, {{200}, {tokens}})};
  }
  IterationOptions options;
  const RunResult one = simulate(plans, model, options);
  options.threads = 2;
  const RunResult two = simulate(plans, model, options);
  options.costing.network = NetworkUse::closed_form;
  const RunResult alone = simulate(plans, model, options);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    EXPECT_EQ(one.iterations[i].time_seconds, two.iterations[i].time_seconds);
  }
  EXPECT_GT(one.summary.mean_seconds, alone.summary.mean_seconds);
}

}  // namespace
}  // namespace hydraulis
