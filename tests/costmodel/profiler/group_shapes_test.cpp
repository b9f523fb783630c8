#include "costmodel/profiler/group_shapes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace hydraulis {
namespace {

std::string text(const std::vector<GroupShape>& shapes) {
  std::string all;
  for (const GroupShape& shape : shapes) {
    all += std::to_string(shape.ranks) + "/" + std::to_string(shape.nodes) + ":";
    for (const auto& group : shape.groups) {
      all += " ";
      for (const int rank : group) all += std::to_string(rank) + ",";
    }
    all += "; ";
  }
  return all;
}

TEST(GroupShapes, OneRankHasNone) { EXPECT_TRUE(group_shapes({"a"}).empty()); }

TEST(GroupShapes, InsideANode) {
  EXPECT_EQ(text(group_shapes({"a", "a"})), "2/1: 0,1,; ");
  EXPECT_EQ(text(group_shapes({"a", "a", "a", "a"})), "2/1: 0,1, 2,3,; 4/1: 0,1,2,3,; ");
  EXPECT_EQ(text(group_shapes({"a", "a", "a"})), "2/1: 0,1,; 3/1: 0,1,2,; ");
}

TEST(GroupShapes, AcrossNodesWithOneRankOfEachAndWithAll) {
  EXPECT_EQ(text(group_shapes({"a", "b"})), "2/2: 0,1,; ");
  EXPECT_EQ(text(group_shapes({"a", "a", "b", "b"})),
            "2/1: 0,1, 2,3,; 2/2: 0,2, 1,3,; 4/2: 0,1,2,3,; ");
  // Ranks dealt out to the nodes in turn.
  EXPECT_EQ(text(group_shapes({"a", "b", "a", "b"})),
            "2/1: 0,2, 1,3,; 2/2: 0,1, 2,3,; 4/2: 0,2,1,3,; ");
}

TEST(GroupShapes, NodesOfUnequalSize) {
  for (const auto& hosts : {std::vector<std::string>{"a", "a", "a", "b"},
                            std::vector<std::string>{"a", "b", "b", "b", "b", "c", "c"}}) {
    const auto shapes = group_shapes(hosts);
    EXPECT_FALSE(shapes.empty());
    for (const GroupShape& shape : shapes) {
      EXPECT_FALSE(shape.groups.empty());
      std::set<int> seen;
      for (const auto& group : shape.groups) {
        EXPECT_EQ(static_cast<int>(group.size()), shape.ranks);
        std::set<std::string> nodes;
        for (const int rank : group) {
          EXPECT_TRUE(seen.insert(rank).second) << "rank " << rank << " twice";
          nodes.insert(hosts[rank]);
        }
        EXPECT_EQ(static_cast<int>(nodes.size()), shape.nodes);
      }
    }
  }
}

TEST(GroupShapes, NoShapeTwice) {
  std::vector<std::string> hosts;
  for (int rank = 0; rank < 32; ++rank) hosts.push_back("n" + std::to_string(rank / 8));
  std::set<std::pair<int, int>> seen;
  for (const GroupShape& shape : group_shapes(hosts)) {
    EXPECT_TRUE(seen.insert({shape.ranks, shape.nodes}).second)
        << shape.ranks << "/" << shape.nodes;
  }
  EXPECT_EQ(seen, (std::set<std::pair<int, int>>{
                      {2, 1}, {4, 1}, {8, 1}, {2, 2}, {16, 2}, {4, 4}, {32, 4}}));
  EXPECT_EQ(count_nodes(hosts), 4);
}

}  // namespace
}  // namespace hydraulis
