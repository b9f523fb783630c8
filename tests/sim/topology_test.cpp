#include "sim/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/sim/flows.h"

namespace hydraulis {
namespace {

/// Four nodes of four devices, leaves of two nodes below one spine.
ClusterSpec example() {
  ClusterSpec cluster;
  cluster.nodes = 4;
  cluster.devices_per_node = 4;
  cluster.intra_node = {200e9, 3e-6};
  cluster.inter_node = {25e9, 14e-6};
  cluster.levels = {{"leaf", 2, 2, 1e-6}, {"spine", 4, 1, 2e-6}};
  return cluster;
}

std::vector<std::string> names(const Topology& topology, int source, int destination) {
  std::vector<std::string> result;
  for (const std::uint32_t link : route(topology, source, destination)) {
    result.push_back(link_name(topology, link));
  }
  return result;
}

double latency(const Topology& topology, int source, int destination) {
  return latency_seconds(topology, route(topology, source, destination));
}

TEST(Topology, RoutesInsideANode) {
  const Topology topology = make_topology(example());
  EXPECT_TRUE(route(topology, 5, 5).empty());
  EXPECT_EQ(names(topology, 5, 7), (std::vector<std::string>{"device 5, port out", "node 1, inside",
                                                             "device 7, port in"}));
  EXPECT_DOUBLE_EQ(latency(topology, 5, 7), 3e-6);
  EXPECT_DOUBLE_EQ(topology.links[inside_link(topology, 1)].bytes_per_second, 4 * 200e9);
}

TEST(Topology, RoutesOverLeavesAndSpine) {
  const Topology topology = make_topology(example());
  EXPECT_EQ(names(topology, 0, 5),
            (std::vector<std::string>{"device 0, lane to its card, out", "node 0, card 0, out",
                                      "node 1, card 1, in", "device 5, lane to its card, in"}));
  EXPECT_DOUBLE_EQ(latency(topology, 0, 5), 15e-6);  // and the leaf's switch
  EXPECT_EQ(names(topology, 0, 13),
            (std::vector<std::string>{"device 0, lane to its card, out", "node 0, card 0, out",
                                      "leaf 0, up", "leaf 1, down", "node 3, card 1, in",
                                      "device 13, lane to its card, in"}));
  EXPECT_DOUBLE_EQ(latency(topology, 0, 13), 18e-6);  // leaf, spine, leaf
  // Two nodes of four cards come in below, half of it goes out above.
  EXPECT_DOUBLE_EQ(topology.links[switch_link(topology, 0, 0, false)].bytes_per_second, 100e9);
}

TEST(Topology, CardsAreSharedByRunsOfDevices) {
  ClusterSpec cluster = example();
  cluster.network_cards_per_node = 2;
  cluster.network_card_bytes_per_second = 40e9;
  const Topology topology = make_topology(cluster);
  EXPECT_EQ(card_link(topology, 4, true), card_link(topology, 5, true));
  EXPECT_NE(card_link(topology, 5, true), card_link(topology, 6, true));
  EXPECT_EQ(link_name(topology, card_link(topology, 7, true)), "node 1, card 1, in");
  EXPECT_DOUBLE_EQ(topology.links[card_link(topology, 7, true)].bytes_per_second, 40e9);
  EXPECT_DOUBLE_EQ(topology.links[lane_link(topology, 7, true)].bytes_per_second, 25e9);
  EXPECT_DOUBLE_EQ(topology.links[switch_link(topology, 0, 1, true)].bytes_per_second, 80e9);
}

TEST(Topology, OnRailsASwitchJoinsOneCardOfEachNode) {
  ClusterSpec cluster = example();
  cluster.rails = true;
  const Topology topology = make_topology(cluster);
  EXPECT_EQ(switch_of(topology, 0, 1), switch_of(topology, 0, 5));
  EXPECT_NE(switch_of(topology, 0, 1), switch_of(topology, 0, 6));
  EXPECT_EQ(switch_of(topology, 1, 1), switch_of(topology, 1, 14));
  EXPECT_EQ(route(topology, 1, 5).size(), 4u);
  EXPECT_EQ(route(topology, 1, 6).size(), 6u);  // another rail: over the spine
  EXPECT_DOUBLE_EQ(topology.links[switch_link(topology, 0, 3, false)].bytes_per_second, 25e9);
}

TEST(Topology, ALastSwitchWithFewerNodesHasLessToPassOn) {
  ClusterSpec cluster = example();
  cluster.nodes = 3;
  cluster.levels.pop_back();
  const Topology topology = make_topology(cluster);
  EXPECT_DOUBLE_EQ(topology.links[switch_link(topology, 0, 0, false)].bytes_per_second, 100e9);
  EXPECT_DOUBLE_EQ(topology.links[switch_link(topology, 0, 1, false)].bytes_per_second, 50e9);
  EXPECT_EQ(route(topology, 0, 11).size(), 6u);  // leaves are joined above the last level
}

TEST(Topology, WhatIfScalesAndLimits) {
  ClusterSpec cluster = example();
  cluster.node_inside_bytes_per_second = 64e9;
  const Topology topology = make_topology(cluster, 0.5, 3);
  EXPECT_DOUBLE_EQ(topology.links[inside_link(topology, 0)].bytes_per_second, 32e9);
  EXPECT_DOUBLE_EQ(topology.links[port_link(topology, 0, true)].bytes_per_second, 100e9);
  EXPECT_DOUBLE_EQ(topology.links[card_link(topology, 0, true)].bytes_per_second, 12.5e9);
  EXPECT_DOUBLE_EQ(latency(topology, 0, 13), 54e-6);
}

// Every route goes out of the source and into the destination over links that there are, and has
// the links of the way back in the other direction.
TEST(Topology, RoutesAreSymmetric) {
  ClusterSpec cluster = example();
  for (const bool rails : {false, true}) {
    cluster.rails = rails;
    cluster.network_cards_per_node = rails ? 4 : 3;
    const Topology topology = make_topology(cluster);
    for (int a = 0; a < 16; ++a) {
      for (int b = 0; b < 16; ++b) {
        const auto there = route(topology, a, b);
        const auto back = route(topology, b, a);
        ASSERT_EQ(there.size(), back.size());
        ASSERT_EQ(there.empty(), a == b);
        ASSERT_DOUBLE_EQ(latency_seconds(topology, there), latency_seconds(topology, back));
        for (std::size_t i = 0; i < there.size(); ++i) {
          ASSERT_LT(there[i], topology.links.size());
          ASSERT_EQ(std::count(there.begin(), there.end(), there[i]), 1);
        }
      }
    }
  }
}

TEST(Topology, DevicesThatThereAreNot) {
  const Topology topology = make_topology(example());
  EXPECT_THROW(route(topology, 0, 16), Error);
  EXPECT_THROW(route(topology, -1, 0), Error);
}

}  // namespace
}  // namespace hydraulis
