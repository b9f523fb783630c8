#include "report/profile_compare.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/report/profile_example.h"

namespace hydraulis {
namespace {

using test::example_profile;

TEST(CompareProfiles, FindsTheSlowOne) {
  OperatorProfile b = example_profile(1.3);
  b.machine.processor = "another";
  b.machine.software = {{"compiler", "1.3"}};
  const Json json = compare_profiles(example_profile(), "a.h5", b, "b.h5").json;
  EXPECT_NEAR(json.at("ratio").get<double>(), 1.3, 1e-9);
  EXPECT_EQ(json.at("slower"), "b");
  EXPECT_EQ(json.at("points"), 5 + 9 + 2 * 8);
  EXPECT_EQ(json.at("differences").size(), 2u) << json.at("differences");
  const Report turned = compare_profiles(b, "b.h5", example_profile(), "a.h5");
  EXPECT_EQ(turned.json.at("slower"), "a");
  EXPECT_NE(to_text(turned).find("the slow one is A (b.h5): 1.30 times"), std::string::npos);
  EXPECT_TRUE(compare_profiles(example_profile(), "a", example_profile(1.02), "b")
                  .json.at("slower")
                  .is_null());
}

// Only large messages are slower: latency and bandwidth are told apart.
TEST(CompareProfiles, LargeMessagesApart) {
  OperatorProfile b = example_profile();
  for (CollectiveSample& sample : b.collectives) {
    if (sample.bytes >= 1 << 20) sample.time.median_seconds *= 2;
  }
  const Json rows = compare_profiles(example_profile(), "a", b, "b").json.at("rows");
  EXPECT_EQ(rows.at(0).at("what"), "all_reduce, 4 ranks on 1 node, from 1 MiB");
  EXPECT_NEAR(rows.at(0).at("ratio").get<double>(), 2, 1e-9);
  for (std::size_t i = 1; i < rows.size(); ++i) {
    EXPECT_NEAR(rows.at(i).at("ratio").get<double>(), 1, 1e-9);
  }
}

TEST(CompareProfiles, NothingInCommonIsRefused) {
  OperatorProfile b = example_profile();
  b.kernels.clear();
  b.copies.clear();
  for (CollectiveSample& sample : b.collectives) sample.ranks = 8;
  EXPECT_THROW(compare_profiles(example_profile(), "a", b, "b"), InputError);
}

TEST(CompareNodes, FindsTheSlowNode) {
  OperatorProfile profile = example_profile();
  profile.ranks.clear();
  for (int rank = 0; rank < 8; ++rank) {
    profile.ranks.push_back({rank, "node" + std::to_string(rank / 2), 90e9, 20e9});
  }
  EXPECT_TRUE(compare_nodes(profile, "p").json.at("slow").empty());
  profile.ranks[5].flops = 60e9;
  const Report slow = compare_nodes(profile, "p");
  EXPECT_EQ(slow.json.at("slow"), Json::array({"node2"}));
  EXPECT_NE(to_text(slow).find("node2 (67 %)"), std::string::npos) << to_text(slow);
  profile.ranks[5].flops = 90e9;
  profile.ranks[0].copy_bytes_per_second = 10e9;
  EXPECT_EQ(compare_nodes(profile, "p").json.at("slow"), Json::array({"node0"}));
}

// Two nodes: the faster one is the measure. One node: its ranks.
TEST(CompareNodes, TwoNodesAndRanksOfOneNode) {
  OperatorProfile profile = example_profile();
  profile.ranks[3].flops = 45e9;
  EXPECT_EQ(compare_nodes(profile, "p").json.at("slow"), Json::array({"node1"}));
  for (RankSpeed& rank : profile.ranks) rank.host = "one";
  EXPECT_EQ(compare_nodes(profile, "p").json.at("slow"), Json::array({"rank 3 (one)"}));
  profile.ranks.resize(1);
  EXPECT_THROW(compare_nodes(profile, "p"), InputError);
}

}  // namespace
}  // namespace hydraulis
