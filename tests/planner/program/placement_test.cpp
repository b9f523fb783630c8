#include "planner/program/placement.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "base/error.h"
#include "tests/planner/program/program_fixture.h"

namespace hydraulis {
namespace {

using testing::scheme;

std::vector<int> range(int begin, int end) {
  std::vector<int> numbers(end - begin);
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

TEST(Placement, PipelinesLieInTheirGroup) {
  ClusterSpec cluster;
  cluster.nodes = 3;
  cluster.devices_per_node = 8;
  cluster.groups = {{1, {}, 1}, {2, {}, 2}};
  std::vector<Scheme> schemes = {scheme(1, 8, 2), scheme(1, 4, 1), scheme(1, 4, 1)};
  schemes[0].group = 1;
  const Placement placement = place(schemes, cluster);
  EXPECT_EQ(placement[0][0], range(8, 16));
  EXPECT_EQ(placement[0][1], range(16, 24));
  EXPECT_EQ(placement[1][0], range(0, 4));
  EXPECT_EQ(placement[2][0], range(4, 8));
  schemes[0].group = 0;
  EXPECT_THROW(place(schemes, cluster), InfeasibleError);
  schemes[0].group = 2;
  EXPECT_THROW(place(schemes, cluster), InputError);
}

TEST(Placement, WidestPipelinesComeFirstAndWideGroupsTakeWholeNodes) {
  // As listed the narrow ones come first; 16 devices need two empty nodes all the same.
  std::vector<Scheme> schemes(12, scheme(1, 4, 1));
  schemes.push_back(scheme(1, 16, 1));
  const Placement placement = place(schemes, 8, 8);
  EXPECT_EQ(placement[12][0], range(0, 16));
  EXPECT_EQ(placement[0][0], range(16, 20));
  EXPECT_EQ(placement[1][0], range(20, 24));
  EXPECT_EQ(placement[11][0], range(60, 64));
}

TEST(Placement, FillsTheFullestNodeThatStillFits) {
  // After (1,4,1) twice and (1,2,1): node 0 holds 4+4, node 1 holds 2; one more pair goes to
  // node 1.
  const Placement placement =
      place({scheme(1, 2, 1), scheme(1, 4, 1), scheme(1, 4, 1), scheme(1, 2, 1)}, 3, 8);
  EXPECT_EQ(placement[1][0], range(0, 4));
  EXPECT_EQ(placement[2][0], range(4, 8));
  EXPECT_EQ(placement[0][0], range(8, 10));
  EXPECT_EQ(placement[3][0], range(10, 12));
}

TEST(Placement, StagesCrossNodesButTensorGroupsDoNot) {
  const std::vector<Scheme> schemes{scheme(1, 8, 3), scheme(2, 4, 2), scheme(1, 4, 5),
                                    scheme(1, 1, 4)};
  const Placement placement = place(schemes, 8, 8);
  std::set<int> used;
  for (std::size_t p = 0; p < schemes.size(); ++p) {
    ASSERT_EQ(placement[p].size(), schemes[p].pp);
    for (const auto& stage : placement[p]) {
      ASSERT_EQ(stage.size(), schemes[p].cp * schemes[p].tp);
      for (std::size_t i = 0; i < stage.size(); ++i) {
        EXPECT_TRUE(used.insert(stage[i]).second) << stage[i];
        EXPECT_EQ(stage[i] / 8, stage[i / schemes[p].tp * schemes[p].tp] / 8);
      }
    }
  }
  EXPECT_EQ(used.size(), 24u + 16 + 20 + 4);
}

TEST(Placement, SaysWhatDoesNotFit) {
  try {
    place(std::vector<Scheme>(5, scheme(1, 16, 1)), 8, 8);
    FAIL();
  } catch (const InfeasibleError& error) {
    EXPECT_NE(std::string(error.what()).find("80 devices, 16 more than the cluster's 64"),
              std::string::npos)
        << error.what();
  }
  // 60 of 64 devices, but a node of 8 holds one group of 6.
  EXPECT_THROW(place(std::vector<Scheme>(10, scheme(1, 6, 1)), 8, 8), InfeasibleError);
  EXPECT_NO_THROW(place(std::vector<Scheme>(8, scheme(1, 6, 1)), 8, 8));
  EXPECT_THROW(place({scheme(1, 0, 1)}, 8, 8), InputError);
  EXPECT_THROW(place({scheme(1, 1, 1)}, 0, 8), InputError);
}

}  // namespace
}  // namespace hydraulis
