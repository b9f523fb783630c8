#include "tests/sim/flows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "sim/fair_share.h"
#include "tests/sim/moving_program.h"

namespace hydraulis {
namespace {

/// Nodes of four devices, 100 B/s inside and 10 B/s between.
ClusterSpec slow_cluster(int nodes) { return testing::slow_cluster(nodes, 4); }

std::vector<double> ends(const std::vector<Flow>& flows, const ClusterSpec& cluster) {
  std::vector<double> result;
  for (const Span& span : run_flows(flows, make_topology(cluster))) result.push_back(span.end);
  return result;
}

double last_end(const std::vector<Flow>& flows, const ClusterSpec& cluster) {
  const std::vector<double> all = ends(flows, cluster);
  return *std::max_element(all.begin(), all.end());
}

TEST(Flows, OneAloneHasItsRouteToItself) {
  ClusterSpec cluster = slow_cluster(2);
  cluster.intra_node.latency_seconds = 0.5;
  cluster.inter_node.latency_seconds = 2;
  EXPECT_DOUBLE_EQ(ends({{0, 1, 300, {}}}, cluster)[0], 3.5);
  EXPECT_DOUBLE_EQ(ends({{0, 4, 300, {}}}, cluster)[0], 32);
  EXPECT_DOUBLE_EQ(ends({{0, 4, 0, {}}}, cluster)[0], 2);
  EXPECT_DOUBLE_EQ(ends({{3, 3, 300, {}}}, cluster)[0], 0);
}

TEST(Flows, HalfTheBandwidthTakesTwiceTheTime) {
  ClusterSpec cluster = slow_cluster(2);
  const std::vector<Flow> flows = {{0, 4, 300, {}}, {1, 4, 100, {}}, {5, 0, 70, {1}}};
  const std::vector<double> full = ends(flows, cluster);
  cluster.inter_node.bandwidth_bytes_per_second /= 2;
  const std::vector<double> half = ends(flows, cluster);
  for (std::size_t i = 0; i < flows.size(); ++i) EXPECT_DOUBLE_EQ(half[i], 2 * full[i]);
}

TEST(Flows, TwoOnOneLinkTakeTwiceAsLong) {
  const std::vector<double> both = ends({{0, 4, 100, {}}, {1, 4, 100, {}}}, slow_cluster(2));
  EXPECT_DOUBLE_EQ(both[0], 20);
  EXPECT_DOUBLE_EQ(both[1], 20);
  // To different devices they do not meet.
  EXPECT_DOUBLE_EQ(last_end({{0, 4, 100, {}}, {1, 5, 100, {}}}, slow_cluster(2)), 10);
}

// Three into one device of 10 B/s: 60 B, 100 B and 100 B. A third each (10/3 B/s) until the first
// has its 60 B at 18 s; the others have 40 B left and half each: 8 s more. One that comes at 20 s
// (after 200 B to elsewhere) with 10 B: the others have 30 B left, a third each, so it has its 10 B
// at 23 s, and they their last 20 B at 27 s.
TEST(Flows, WhoLeavesGivesItsShareBack) {
  const ClusterSpec cluster = slow_cluster(2);
  std::vector<Flow> flows = {{0, 4, 60, {}}, {1, 4, 100, {}}, {2, 4, 100, {}}};
  std::vector<double> three = ends(flows, cluster);
  EXPECT_DOUBLE_EQ(three[0], 18);
  EXPECT_DOUBLE_EQ(three[1], 26);
  EXPECT_DOUBLE_EQ(three[2], 26);
  flows.push_back({3, 5, 200, {}});
  flows.push_back({3, 4, 10, {3}});
  three = ends(flows, cluster);
  EXPECT_DOUBLE_EQ(three[3], 20);
  EXPECT_DOUBLE_EQ(three[4], 23);
  EXPECT_NEAR(three[1], 27, 1e-12);
  EXPECT_NEAR(three[2], 27, 1e-12);
}

// Leaves of one node: 40 B/s come in from the four devices, 20 B/s go up. Four flows to the other
// leaf have 5 B/s each; one of them ends early and the others then have 20/3 B/s.
TEST(Flows, AnOversubscribedLeaf) {
  ClusterSpec cluster = slow_cluster(2);
  cluster.levels = {{"leaf", 1, 2, 0}};
  const std::vector<double> four =
      ends({{0, 4, 50, {}}, {1, 5, 100, {}}, {2, 6, 100, {}}, {3, 7, 100, {}}}, cluster);
  EXPECT_DOUBLE_EQ(four[0], 10);
  for (const std::size_t i : {1u, 2u, 3u}) EXPECT_DOUBLE_EQ(four[i], 10 + 50 / (20.0 / 3));
  // Two do not fill the wire up; two more in the other direction do not meet them.
  EXPECT_DOUBLE_EQ(
      last_end({{0, 4, 50, {}}, {1, 5, 50, {}}, {6, 2, 50, {}}, {7, 3, 50, {}}}, cluster), 5);
}

// Two devices on one card of 10 B/s: half each; a card of 15 B/s: 7.5 each, but one device alone
// has no more than its 10.
TEST(Flows, CardsOfTwoDevices) {
  ClusterSpec cluster = slow_cluster(2);
  cluster.network_cards_per_node = 2;
  EXPECT_DOUBLE_EQ(last_end({{0, 4, 30, {}}, {1, 6, 30, {}}}, cluster), 6);
  EXPECT_DOUBLE_EQ(last_end({{0, 4, 30, {}}, {2, 6, 30, {}}}, cluster), 3);
  cluster.network_card_bytes_per_second = 15;
  EXPECT_DOUBLE_EQ(last_end({{0, 4, 30, {}}, {1, 6, 30, {}}}, cluster), 4);
  EXPECT_DOUBLE_EQ(last_end({{0, 4, 30, {}}}, cluster), 3);
}

TEST(Flows, RailsMeetBelowTheSpine) {
  ClusterSpec cluster = slow_cluster(2);
  cluster.levels = {{"leaf", 2, 4, 0}};
  cluster.rails = true;
  EXPECT_DOUBLE_EQ(last_end({{0, 4, 30, {}}, {1, 5, 30, {}}}, cluster), 3);
  // Over the spine, the two cards of a rail's leaf have 20/4 B/s up.
  EXPECT_DOUBLE_EQ(last_end({{0, 5, 30, {}}}, cluster), 6);
}

TEST(Flows, InsideANodeWithoutASwitch) {
  ClusterSpec cluster = slow_cluster(1);
  EXPECT_DOUBLE_EQ(last_end({{0, 1, 100, {}}, {2, 3, 100, {}}}, cluster), 1);
  cluster.node_inside_bytes_per_second = 100;
  EXPECT_DOUBLE_EQ(last_end({{0, 1, 100, {}}, {2, 3, 100, {}}}, cluster), 2);
}

TEST(Flows, AnUnusedNodeChangesNothing) {
  const std::vector<Flow> flows = {{0, 4, 60, {}}, {1, 4, 100, {}}, {5, 1, 40, {0}}};
  ClusterSpec cluster = slow_cluster(2);
  cluster.levels = {{"leaf", 1, 2, 0.25}};
  const std::vector<double> before = ends(flows, cluster);
  cluster.nodes = 3;
  EXPECT_EQ(ends(flows, cluster), before);
}

// 2·7 steps of 12.5 MB at 50 GB/s and 10 ns.
TEST(Flows, RingAllReduceOfEight) {
  ClusterSpec cluster;
  cluster.nodes = 1;
  cluster.devices_per_node = 8;
  cluster.intra_node = cluster.inter_node = {50e9, 10e-9};
  std::vector<int> devices(8);
  std::iota(devices.begin(), devices.end(), 0);
  const std::vector<Flow> flows = ring_all_reduce(devices, 1e8);
  EXPECT_EQ(flows.size(), 112u);
  EXPECT_NEAR(last_end(flows, cluster), 3.5e-3 + 140e-9, 1e-15);
  // One device a node over an idle network: the same.
  cluster.nodes = 8;
  cluster.devices_per_node = 1;
  EXPECT_NEAR(last_end(flows, cluster), 3.5e-3 + 140e-9, 1e-15);
  // Two rings at once on the same links take twice as long, but for the latency.
  std::vector<Flow> twice = flows;
  for (Flow flow : flows) {
    for (int& earlier : flow.after) earlier += 112;
    twice.push_back(flow);
  }
  EXPECT_NEAR(last_end(twice, cluster), 7e-3 + 140e-9, 1e-12);
}

// At any moment no link carries more than it can, and everything that is to arrive does: the bytes
// of every link over the busy time are at most its capacity, and no flow is faster than alone.
TEST(Flows, RandomInstancesKeepWithinLinks) {
  Random random(7);
  for (int trial = 0; trial < 50; ++trial) {
    ClusterSpec cluster = slow_cluster(4);
    cluster.levels = {{"leaf", 2, 1 + 3 * random.uniform(), 0}};
    cluster.network_cards_per_node = 1 + static_cast<int>(random.next() % 4);
    const Topology topology = make_topology(cluster);
    std::vector<Flow> flows(20);
    for (std::size_t i = 0; i < flows.size(); ++i) {
      flows[i].source = static_cast<int>(random.next() % 16);
      flows[i].destination = static_cast<int>(random.next() % 16);
      flows[i].bytes = 100 * random.uniform();
      if (i > 4 && random.next() % 2 == 0) flows[i].after = {static_cast<int>(i) - 4};
    }
    const std::vector<Span> spans = run_flows(flows, topology);
    std::vector<double> carried(topology.links.size());
    double all = 0;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      double slowest = INFINITY;
      for (const std::uint32_t link : route(topology, flows[i].source, flows[i].destination)) {
        carried[link] += flows[i].bytes;
        slowest = std::min(slowest, topology.links[link].bytes_per_second);
      }
      if (flows[i].source != flows[i].destination) {
        ASSERT_GE(spans[i].end - spans[i].start, flows[i].bytes / slowest * (1 - 1e-9));
      }
      for (const int earlier : flows[i].after) ASSERT_GE(spans[i].start, spans[earlier].end);
      all = std::max(all, spans[i].end);
    }
    for (std::size_t link = 0; link < carried.size(); ++link) {
      ASSERT_LE(carried[link], topology.links[link].bytes_per_second * all * (1 + 1e-9));
    }
  }
}

// Rates on routes of random networks: no link beyond what it carries, and who is slower than alone
// crosses a full link on which nobody is faster, measured against what it has alone.
TEST(Flows, RatesOnRoutesAreMaxMinFair) {
  Random random(23);
  for (int trial = 0; trial < 60; ++trial) {
    ClusterSpec cluster = testing::slow_cluster(4, 4);
    cluster.network_cards_per_node = 1 + static_cast<int>(random.next() % 4);
    cluster.network_card_bytes_per_second = 3 + 20 * random.uniform();
    cluster.levels = {{"leaf", 2, 1 + 3 * random.uniform(), 0}};
    cluster.rails = random.next() % 2 == 0;
    cluster.node_inside_bytes_per_second = 50 + 200 * random.uniform();
    const Topology topology = make_topology(cluster);
    std::vector<double> capacities;
    for (const TopologyLink& link : topology.links) capacities.push_back(link.bytes_per_second);
    std::vector<std::vector<ResourceUse>> uses(40);
    std::vector<std::uint32_t> running(uses.size());
    for (std::vector<ResourceUse>& of : uses) {
      const int source = static_cast<int>(random.next() % 16);
      const int destination = (source + 1 + static_cast<int>(random.next() % 15)) % 16;
      double alone = INFINITY;
      for (const std::uint32_t link : route(topology, source, destination)) {
        alone = std::min(alone, capacities[link]);
      }
      for (const std::uint32_t link : route(topology, source, destination)) {
        of.push_back({link, alone});
      }
    }
    FairShare share(capacities, uses.size());
    for (int change = 0; change < 100; ++change) {
      const auto kind = static_cast<std::uint32_t>(random.next() % uses.size());
      if (running[kind] > 0 && random.next() % 2 == 0) {
        share.end(kind);
        --running[kind];
      } else {
        share.start(kind, uses[kind]);
        ++running[kind];
      }
      share.settle([](std::uint32_t) {});
      std::vector<double> carried(capacities.size());
      std::vector<double> fastest(capacities.size());
      for (std::uint32_t k = 0; k < uses.size(); ++k) {
        for (const ResourceUse& use : uses[k]) {
          if (running[k] == 0) continue;
          carried[use.resource] += running[k] * use.amount * share.rate(k);
          fastest[use.resource] = std::max(fastest[use.resource], share.rate(k));
        }
      }
      for (std::size_t link = 0; link < carried.size(); ++link) {
        ASSERT_LE(carried[link], capacities[link] * (1 + 1e-9))
            << link_name(topology, static_cast<std::uint32_t>(link));
      }
      for (std::uint32_t k = 0; k < uses.size(); ++k) {
        if (running[k] == 0 || share.rate(k) == 1) continue;
        ASSERT_TRUE(std::any_of(uses[k].begin(), uses[k].end(),
                                [&](const ResourceUse& use) {
                                  return carried[use.resource] >
                                             capacities[use.resource] * (1 - 1e-9) &&
                                         share.rate(k) > fastest[use.resource] * (1 - 1e-9);
                                }))
            << "kind " << k << " at " << share.rate(k);
      }
    }
  }
}

TEST(Flows, BadFlows) {
  const Topology topology = make_topology(slow_cluster(1));
  EXPECT_THROW(run_flows(std::vector<Flow>{{0, 4, 1, {}}}, topology), Error);
  EXPECT_THROW(run_flows(std::vector<Flow>{{0, 1, -1, {}}}, topology), Error);
  EXPECT_THROW(run_flows(std::vector<Flow>{{0, 1, NAN, {}}}, topology), Error);
  EXPECT_THROW(run_flows(std::vector<Flow>{{0, 1, 1, {0}}}, topology), Error);
}

}  // namespace
}  // namespace hydraulis
