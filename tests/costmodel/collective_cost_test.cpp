#include "costmodel/collective_cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"

namespace hydraulis {
namespace {

using Algorithm = CollectiveAlgorithm;

constexpr Collective kRinged[] = {Collective::all_reduce, Collective::reduce_scatter,
                                  Collective::all_gather, Collective::broadcast};
constexpr Algorithm kAlgorithms[] = {Algorithm::ring, Algorithm::tree, Algorithm::hierarchical,
                                     Algorithm::pairwise};

/// Links of round numbers and no library's efficiencies.
CollectiveNetwork plain(double inside, double near, double between, double far) {
  CollectiveNetwork network;
  network.inside = {inside, near};
  network.between = {between, far};
  return network;
}

CollectiveNetwork a100() { return collective_network(load_cluster("a100-64")); }

double seconds(Collective operation, int members, int nodes, double bytes,
               const CollectiveNetwork& network, Algorithm algorithm = Algorithm::automatic) {
  return collective_cost(operation, even_placement(members, nodes), bytes, network, algorithm)
      .seconds();
}

TEST(CollectiveCost, RingOfEightByHand) {
  // 2·7/8·10⁸ B / 50 GB/s and 14 steps of 10 ns (astra-sim#296).
  const CollectiveCost cost = collective_cost(Collective::all_reduce, even_placement(8, 1), 1e8,
                                              plain(50e9, 10e-9, 50e9, 10e-9), Algorithm::ring);
  EXPECT_NEAR(cost.transfer_seconds, 3.5e-3, 1e-15);
  EXPECT_NEAR(cost.latency_seconds, 140e-9, 1e-18);
  EXPECT_EQ(cost.algorithm, Algorithm::ring);
  EXPECT_EQ(cost.protocol, CollectiveProtocol::plain);
}

TEST(CollectiveCost, GatherAndScatterAreHalfAnAllReduceAndABroadcastMovesEverythingOnce) {
  const CollectiveNetwork network = plain(50e9, 10e-9, 50e9, 10e-9);
  const double whole = seconds(Collective::all_reduce, 8, 1, 1e8, network, Algorithm::ring);
  EXPECT_NEAR(seconds(Collective::all_gather, 8, 1, 1e8, network), whole / 2, 1e-15);
  EXPECT_NEAR(seconds(Collective::reduce_scatter, 8, 1, 1e8, network), whole / 2, 1e-15);
  EXPECT_NEAR(seconds(Collective::broadcast, 8, 1, 1e8, network), 2e-3 + 70e-9, 1e-15);
}

TEST(CollectiveCost, ARingThroughNodesUsesEveryCardOfANode) {
  // 16 on 2 nodes: 8 cards of 20 GB/s carry 160, less than 200 inside.
  const CollectiveNetwork network = plain(200e9, 1e-6, 20e9, 5e-6);
  EXPECT_NEAR(seconds(Collective::all_gather, 16, 2, 16e8, network, Algorithm::ring),
              15e8 / 160e9 + 14e-6 + 5e-6, 1e-12);
  // One a node: one card; sixteen a node: the links inside are the slower ones.
  EXPECT_NEAR(seconds(Collective::all_gather, 2, 2, 2e8, network, Algorithm::ring),
              1e8 / 20e9 + 5e-6, 1e-12);
  EXPECT_NEAR(seconds(Collective::all_gather, 32, 2, 32e8, network, Algorithm::ring),
              31e8 / 200e9 + 30e-6 + 5e-6, 1e-12);
  // Three in one node and one in the other: what enters and leaves that node is one card's.
  const std::vector<int> uneven = {0, 1, 2, 8};
  EXPECT_NEAR(collective_cost(Collective::all_gather, group_placement(uneven, 8), 4e8, network,
                              Algorithm::ring)
                  .transfer_seconds,
              3e8 / 20e9, 1e-12);
}

TEST(CollectiveCost, MembersThatShareCardsShareTheirBandwidth) {
  // 2 nodes of 8 with 4 cards of 20 GB/s: devices 0 and 1 have the first.
  CollectiveNetwork network = plain(200e9, 0, 20e9, 0);
  network.card_bytes_per_second = 20e9;
  network.cards_per_node = 4;
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const std::vector<int> pairs = {0, 1, 8, 9};
  const std::vector<int> apart = {0, 2, 8, 10};
  const auto gather = [&](const std::vector<int>& devices, Algorithm algorithm) {
    return collective_cost(Collective::all_gather, group_placement(devices, 8, 4), 16e8, network,
                           algorithm)
        .seconds();
  };
  EXPECT_EQ(group_placement(pairs, 8, 4).fewest_cards, 1);
  EXPECT_EQ(group_placement(apart, 8, 4).fewest_cards, 2);
  EXPECT_NEAR(gather(all, Algorithm::ring), 15e8 / 80e9, 1e-12);
  EXPECT_NEAR(gather(pairs, Algorithm::ring), 12e8 / 20e9, 1e-12);
  EXPECT_NEAR(gather(apart, Algorithm::ring), 12e8 / 40e9, 1e-12);
  // In the node 7/8 of it, between nodes half of an eighth at half a card.
  EXPECT_NEAR(gather(all, Algorithm::hierarchical), 14e8 / 200e9 + 1e8 / 10e9, 1e-12);
  EXPECT_NEAR(collective_cost(Collective::all_to_all, group_placement(all, 8, 4), 16e6, network,
                              Algorithm::pairwise)
                  .seconds(),
              7e6 / 200e9 + 8e6 / 10e9, 1e-12);
}

TEST(CollectiveCost, HierarchicalOnTwoNodesOfEightByHand) {
  const CollectiveNetwork network = plain(200e9, 1e-6, 25e9, 5e-6);
  // Reduce-scatter in the node, all-reduce of an eighth between two, all-gather in the node.
  const CollectiveCost cost = collective_cost(Collective::all_reduce, even_placement(16, 2), 8e8,
                                              network, Algorithm::hierarchical);
  EXPECT_NEAR(cost.transfer_seconds, 3.5e-3 + 4e-3 + 3.5e-3, 1e-12);
  EXPECT_NEAR(cost.latency_seconds, 14 * 1e-6 + 2 * 5e-6, 1e-15);
  EXPECT_EQ(cost.algorithm, Algorithm::hierarchical);
  EXPECT_NEAR(seconds(Collective::all_gather, 16, 2, 8e8, network, Algorithm::hierarchical),
              3.5e-3 + 2e-3 + 7e-6 + 5e-6, 1e-12);
  // Inside one node there is no level to go over.
  EXPECT_EQ(collective_cost(Collective::all_reduce, even_placement(8, 1), 8e8, network,
                            Algorithm::hierarchical)
                .algorithm,
            Algorithm::ring);
}

TEST(CollectiveCost, TreeAndRingCrossWhereTheirFormsSay) {
  // One device in each of 16 nodes: ring 30 α + 2·15/16·S/v, tree 8 α + 2·S/v: equal at 176 α·v.
  const double latency = 5e-6;
  const double speed = 25e9;
  const CollectiveNetwork network = plain(1e12, 1e-6, speed, latency);
  const auto chosen = [&](double bytes) {
    return collective_cost(Collective::all_reduce, even_placement(16, 16), bytes, network)
        .algorithm;
  };
  const double crossover = 176 * latency * speed;
  EXPECT_EQ(chosen(0.999 * crossover), Algorithm::tree);
  EXPECT_EQ(chosen(1.001 * crossover), Algorithm::ring);
  EXPECT_NEAR(seconds(Collective::all_reduce, 16, 16, crossover, network, Algorithm::tree),
              seconds(Collective::all_reduce, 16, 16, crossover, network, Algorithm::ring), 1e-12);
}

TEST(CollectiveCost, AllToAllSendsAShareToEveryoneInTurn) {
  const CollectiveNetwork network = plain(200e9, 1e-6, 25e9, 5e-6);
  // Of 16 shares of 1 MB: 7 inside, 8 between.
  EXPECT_NEAR(seconds(Collective::all_to_all, 16, 2, 16e6, network, Algorithm::pairwise),
              7e6 / 200e9 + 8e6 / 25e9 + 7e-6 + 8 * 5e-6, 1e-12);
  // In two levels: 7/8 inside, then half between with one message.
  EXPECT_NEAR(seconds(Collective::all_to_all, 16, 2, 16e6, network, Algorithm::hierarchical),
              14e6 / 200e9 + 8e6 / 25e9 + 7e-6 + 5e-6, 1e-12);
  EXPECT_NEAR(seconds(Collective::send, 2, 1, 1e6, network), 1e6 / 200e9 + 1e-6, 1e-15);
  EXPECT_NEAR(seconds(Collective::send, 2, 2, 1e6, network), 1e6 / 25e9 + 5e-6, 1e-15);
}

TEST(CollectiveCost, HalfTheBandwidthDoublesWhatBytesTakeAndTwiceTheLatencyTheRest) {
  for (const Algorithm algorithm : kAlgorithms) {
    for (int o = 0; o < kCollectives; ++o) {
      const auto operation = static_cast<Collective>(o);
      const GroupPlacement group =
          operation == Collective::send ? even_placement(2, 2) : even_placement(24, 3);
      const auto cost = [&](double speed, double latency) {
        return collective_cost(operation, group, 3e7,
                               plain(speed * 200e9, latency * 3e-6, speed * 25e9, latency * 14e-6),
                               algorithm);
      };
      const CollectiveCost base = cost(1, 1);
      EXPECT_NEAR(cost(0.5, 1).transfer_seconds, 2 * base.transfer_seconds, 1e-12);
      EXPECT_NEAR(cost(0.5, 1).latency_seconds, base.latency_seconds, 1e-15);
      EXPECT_NEAR(cost(1, 2).latency_seconds, 2 * base.latency_seconds, 1e-15);
      EXPECT_GT(base.transfer_seconds, 0) << to_string(operation);
    }
  }
}

TEST(CollectiveCost, MoreBytesNeverTakeLessTimeAndAutoIsTheLeast) {
  for (const char* name : {"a100-1024", "h100-1024"}) {
    for (const bool prior : {true, false}) {
      CollectiveNetwork network = collective_network(load_cluster(name));
      if (!prior) network.generation = NcclGeneration::none;
      for (const auto& [members, nodes] :
           {std::pair{2, 1}, {8, 1}, {16, 2}, {12, 3}, {64, 8}, {128, 128}, {1024, 128}}) {
        for (int o = 0; o < kCollectives - 1; ++o) {
          const auto operation = static_cast<Collective>(o);
          double before[5] = {};
          for (double bytes = 1; bytes < 1e11; bytes *= 1.07) {
            const double least = seconds(operation, members, nodes, bytes, network);
            for (const Algorithm algorithm : kAlgorithms) {
              const double one = seconds(operation, members, nodes, bytes, network, algorithm);
              ASSERT_LE(least, one) << to_string(operation) << " of " << bytes;
              double& last = before[static_cast<std::size_t>(algorithm)];
              ASSERT_LE(last, one) << to_string(algorithm) << " of " << bytes;
              last = one;
            }
            ASSERT_LE(before[0], least);
            before[0] = least;
          }
        }
      }
    }
  }
}

TEST(CollectiveCost, ADeviceThatIsNoMemberChangesNothing) {
  const std::vector<int> group = {3, 11, 12, 20};
  const GroupPlacement placement = group_placement(group, 8);
  EXPECT_EQ(placement, (GroupPlacement{4, 3, 1, 2, 1}));
  // The same members on a cluster of more nodes.
  CollectiveNetwork more = collective_network(load_cluster("a100-1024"));
  EXPECT_EQ(collective_cost(Collective::all_reduce, placement, 1e7, more).seconds(),
            collective_cost(Collective::all_reduce, placement, 1e7, a100()).seconds());
  EXPECT_EQ(seconds(Collective::all_reduce, 1, 1, 1e9, a100()), 0);
}

TEST(CollectiveCost, NcclsTableByHand) {
  // 8 A100: Simple 8.4 + 14·3.4 µs and 7/4·S/240 GB/s; LL 6.6 + 14·0.6 µs at 87.7 GB/s.
  const CollectiveNetwork network = a100();
  EXPECT_EQ(network.generation, NcclGeneration::ampere);
  EXPECT_NEAR(network.inside.bandwidth_bytes_per_second, 240e9, 1);
  EXPECT_NEAR(network.between.bandwidth_bytes_per_second, 24e9, 1);
  const GroupPlacement node = even_placement(8, 1);
  const CollectiveCost large =
      collective_cost(Collective::all_reduce, node, 1 << 30, network, Algorithm::ring);
  EXPECT_EQ(large.protocol, CollectiveProtocol::simple);
  EXPECT_NEAR(large.seconds(), 56e-6 + 1.75 * (1 << 30) / 240e9, 1e-9);
  const CollectiveCost small =
      collective_cost(Collective::all_reduce, node, 65536, network, Algorithm::ring);
  EXPECT_EQ(small.protocol, CollectiveProtocol::ll);
  EXPECT_NEAR(small.seconds(), 15e-6 + 1.75 * 65536 / 87.7e9, 1e-9);
  // 64 on 8 nodes, Simple: 1.4·(8.4 + 112·3.4 + 14·14) µs, 126/64·S over 8 cards of 24 GB/s.
  const CollectiveCost far = collective_cost(Collective::all_reduce, even_placement(64, 8),
                                             4.0 * (1 << 30), network, Algorithm::ring);
  EXPECT_EQ(far.protocol, CollectiveProtocol::simple);
  EXPECT_NEAR(far.latency_seconds, 1.4 * (8.4 + 112 * 3.4 + 14 * 14) * 1e-6, 1e-12);
  EXPECT_NEAR(far.transfer_seconds, 126.0 / 64 * 4.0 * (1 << 30) / 192e9, 1e-9);
  // A tree of 8 bytes under LL: 6.8 + 2·(7·0.6 + 3·5) µs.
  const CollectiveCost tiny =
      collective_cost(Collective::all_reduce, even_placement(64, 8), 8, network, Algorithm::tree);
  EXPECT_EQ(tiny.protocol, CollectiveProtocol::ll);
  EXPECT_NEAR(tiny.latency_seconds, (6.8 + 2 * (7 * 0.6 + 3 * 5)) * 1e-6, 1e-12);
}

TEST(CollectiveCost, NcclIsForItsDevicesAndMeasuredLinksAreTakenAsTheyAre) {
  ClusterSpec cluster = load_cluster("h100-64");
  EXPECT_EQ(collective_network(cluster).generation, NcclGeneration::hopper);
  EXPECT_NEAR(collective_network(cluster).inside.bandwidth_bytes_per_second, 450e9 * 20.6 / 25, 1);
  cluster.origin = "measured";
  EXPECT_EQ(collective_network(cluster).inside.bandwidth_bytes_per_second, 450e9);
  cluster.device.name = "a100-40gb";
  EXPECT_EQ(collective_network(cluster).generation, NcclGeneration::ampere);
  for (const char* other : {"cpu", "a1000", "h20x", "mi300x", ""}) {
    cluster.device.name = other;
    EXPECT_EQ(collective_network(cluster).generation, NcclGeneration::none) << other;
  }
  cluster.device.name = "h100";
  cluster.cores_per_node = 64;
  EXPECT_EQ(collective_network(cluster).generation, NcclGeneration::none);
  const CollectiveNetwork scaled = collective_network(cluster, 3, 0.5);
  EXPECT_EQ(scaled.inside.bandwidth_bytes_per_second, 225e9);
  EXPECT_NEAR(scaled.between.latency_seconds, 3 * 14e-6, 1e-18);
}

TEST(CollectiveCost, WhatCannotBeIsRefused) {
  const CollectiveNetwork network = plain(1e9, 0, 0, 0);
  const GroupPlacement node = even_placement(4, 1);
  const double infinite = std::numeric_limits<double>::infinity();
  for (const double bytes : {-1.0, infinite, std::nan("")}) {
    EXPECT_THROW(collective_cost(Collective::all_reduce, node, bytes, network), InputError);
  }
  EXPECT_THROW(collective_cost(Collective::all_reduce, even_placement(4, 2), 1, network),
               InputError);
  EXPECT_THROW(collective_cost(Collective::all_reduce, {0, 1, 1, 1, 1}, 1, network), InputError);
  EXPECT_THROW(collective_cost(Collective::all_reduce, {2, 3, 1, 1, 1}, 1, network), InputError);
  EXPECT_THROW(group_placement({}, 8), InputError);
  const std::vector<int> negative = {-1, 2};
  EXPECT_THROW(group_placement(negative, 8), InputError);
  EXPECT_THROW(group_placement(std::vector<int>{1}, 0), InputError);
}

}  // namespace
}  // namespace hydraulis
