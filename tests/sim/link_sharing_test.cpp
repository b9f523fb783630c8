// Replays of programs whose transfers share the links of a network.
#include "sim/link_sharing.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "tests/sim/hand_programs.h"
#include "tests/sim/moving_program.h"

namespace hydraulis {
namespace {

using testing::kBetween;
using testing::kInside;
using testing::slow_cluster;
using Movers = testing::MovingProgram;

/// Two nodes of two devices with one card each; a stage on every device.
Movers four_on_two_cards() {
  Movers movers(2, 2);
  movers.cluster.network_cards_per_node = 1;
  for (int device = 0; device < 4; ++device) movers.stage({device});
  return movers;
}

TEST(LinkSharing, OneFlowAloneTakesItsDurationExactly) {
  Movers movers = four_on_two_cards();
  movers.send(1, 3, 0, 41, 0.077);
  EXPECT_EQ(movers.run().makespan_seconds, movers.run(false).makespan_seconds);
  EXPECT_EQ(movers.run().makespan_seconds, 41 / kBetween + 0.077);
}

// One after the other on links that could be shared but never are.
TEST(LinkSharing, FlowsThatDoNotMeetTakeTheClosedFormsTimes) {
  Movers movers = four_on_two_cards();
  movers.gather(0, 50, 30, 0, 0.1);
  movers.send(0, 2, 0, 70, 0.2);
  movers.program.stages[0].instructions[1].depends_on = {0};
  movers.send(0, 1, 90, 0, 0.3);
  const Replay flows = movers.run();
  const Replay alone = movers.run(false);
  for (std::size_t s = 0; s < flows.spans.size(); ++s) {
    for (std::size_t i = 0; i < flows.spans[s].size(); ++i) {
      EXPECT_DOUBLE_EQ(flows.spans[s][i].end, alone.spans[s][i].end) << s << " " << i;
    }
  }
}

TEST(LinkSharing, TwoSendsOnOneCardTakeTwiceAsLong) {
  Movers movers = four_on_two_cards();
  movers.send(0, 2, 0, 100);
  EXPECT_DOUBLE_EQ(movers.end(0), 10);
  movers.send(1, 3, 0, 100);
  EXPECT_DOUBLE_EQ(movers.end(0), 20);
  EXPECT_DOUBLE_EQ(movers.end(1), 20);
  movers.cluster.network_cards_per_node = 2;
  EXPECT_DOUBLE_EQ(movers.end(1), 10);
  movers.cluster.network_cards_per_node = 1;
  movers.cluster.network_card_bytes_per_second = 20;
  EXPECT_DOUBLE_EQ(movers.end(1), 10);
}

// 100 B and 40 B on a card of 10 B/s: the second ends at 8, the first has 60 B left: at 14.
TEST(LinkSharing, WhoLeavesGivesItsShareBack) {
  Movers movers = four_on_two_cards();
  movers.send(0, 2, 0, 100);
  movers.send(1, 3, 0, 40);
  EXPECT_DOUBLE_EQ(movers.end(1), 8);
  EXPECT_DOUBLE_EQ(movers.end(0), 14);
}

// 3 s that are not the wire's come first and are not shared: 3 + 2 · 4 s.
TEST(LinkSharing, OnlyBytesShareTheWire) {
  Movers movers = four_on_two_cards();
  movers.send(0, 2, 0, 40, 3);
  movers.send(1, 3, 0, 40, 3);
  EXPECT_DOUBLE_EQ(movers.end(0), 11);
  // f32 on the wire: 80 B of the 7 s' worth that there are, 70 B: all of the time is theirs.
  EXPECT_DOUBLE_EQ(movers.run(true, 2).makespan_seconds, 14);
}

TEST(LinkSharing, InsideAndBetweenFollowOneAnother) {
  Movers movers = four_on_two_cards();
  movers.cluster.node_inside_bytes_per_second = 100;
  // 2 s inside and 4 s between for each; both are shared by two.
  for (int stage = 0; stage < 2; ++stage) movers.gather(stage, 200, 40);
  EXPECT_DOUBLE_EQ(movers.end(0), 12);
  EXPECT_DOUBLE_EQ(movers.run(false).makespan_seconds, 6);
}

TEST(LinkSharing, AStageOfTwoDevicesIsTwoOfOne) {
  Movers unfolded = four_on_two_cards();
  unfolded.send(0, 2, 0, 100, 0.5);
  unfolded.send(1, 3, 0, 100, 0.5);
  for (int stage = 0; stage < 4; ++stage) unfolded.gather(stage, 30, 60);
  Movers folded(2, 2);
  folded.cluster = unfolded.cluster;
  folded.stage({0, 1});
  folded.stage({2, 3});
  folded.send(0, 1, 0, 100, 0.5);
  for (int stage = 0; stage < 2; ++stage) folded.gather(stage, 30, 60);
  for (const double card : {0.0, 7.0, 15.0, 20.0, 50.0}) {
    unfolded.cluster.network_card_bytes_per_second = card;
    folded.cluster.network_card_bytes_per_second = card;
    for (int instruction = 0; instruction < 2; ++instruction) {
      EXPECT_DOUBLE_EQ(folded.end(0, instruction), unfolded.end(0, instruction)) << card;
      EXPECT_DOUBLE_EQ(folded.end(1, instruction), unfolded.end(2, instruction)) << card;
    }
  }
}

// The owner of the layer serves three: a third of its card each. Another owner serves nobody else.
TEST(LinkSharing, OwnersOfALayerServeEverybody) {
  Movers movers(4, 1);
  movers.program.optimizer = {1, 1, 4};
  for (int device = 0; device < 4; ++device) movers.stage({device});
  for (int device = 1; device < 4; ++device) movers.gather(device, 0, 50, 0);
  EXPECT_DOUBLE_EQ(movers.end(1), 15);
  movers.gather(0, 0, 50, 1);
  EXPECT_DOUBLE_EQ(movers.end(0), 5);
  // Spread over all, nobody waits.
  movers.program.optimizer = {4, 1, 1};
  EXPECT_DOUBLE_EQ(movers.run().makespan_seconds, 5);
}

TEST(LinkSharing, OwnersOfALayerCollectFromEverybody) {
  Movers movers(4, 1);
  movers.program.optimizer = {2, 1, 2};
  for (int device = 0; device < 4; ++device) {
    movers.stage({device});
    movers.add(device, Op::reduce_gradients, StreamKind::parameters, 0, 50);
  }
  // Two take in what four send.
  EXPECT_DOUBLE_EQ(movers.end(3), 10);
}

// Four nodes, leaves of two, half of what comes in goes up: 10 B/s. Of a device's three partners
// two hang below the other leaf, so two devices want 2 · 2/3 · 10 B/s and have 3/4 of it.
TEST(LinkSharing, GathersOverAnOversubscribedLeaf) {
  Movers movers(4, 1);
  movers.cluster.levels = {{"leaf", 2, 2, 0}};
  for (int device = 0; device < 4; ++device) {
    movers.stage({device});
    movers.gather(device, 0, 30);
  }
  EXPECT_DOUBLE_EQ(movers.end(0), 4);
  movers.cluster.levels[0].oversubscription = 1;
  EXPECT_DOUBLE_EQ(movers.end(0), 3);
  movers.cluster.levels[0].oversubscription = 4;
  EXPECT_DOUBLE_EQ(movers.end(0), 8);
  // A second level above, which is as narrow: three quarters of half.
  movers.cluster.levels = {{"leaf", 1, 1, 0}, {"spine", 2, 2, 0}};
  EXPECT_DOUBLE_EQ(movers.end(0), 4);
}

// A ring of all devices leaves a leaf from one of its nodes only: 10 B/s are enough.
TEST(LinkSharing, ShardedParametersGoRoundARing) {
  Movers movers(4, 1);
  movers.program.sharding = ParameterSharding::sharded;
  movers.cluster.levels = {{"leaf", 2, 2, 0}};
  for (int device = 0; device < 4; ++device) {
    movers.stage({device});
    movers.gather(device, 0, 30);
  }
  EXPECT_DOUBLE_EQ(movers.end(0), 3);
  movers.cluster.levels[0].oversubscription = 4;
  EXPECT_DOUBLE_EQ(movers.end(0), 6);
}

TEST(LinkSharing, ExchangesOfAStage) {
  Movers movers(2, 2);
  movers.cluster.network_cards_per_node = 1;
  const int both = movers.stage({0, 1, 2, 3});
  movers.add(both, Op::all_to_all, StreamKind::collective, 0, 100);
  EXPECT_DOUBLE_EQ(movers.end(0), 20);  // two devices on each card
  movers.cluster.network_cards_per_node = 2;
  EXPECT_DOUBLE_EQ(movers.end(0), 10);
  movers.cluster.levels = {{"leaf", 1, 4, 0}};
  EXPECT_DOUBLE_EQ(movers.end(0), 40);
}

TEST(LinkSharing, SwitchesOnTheWayTakeTime) {
  Movers movers(4, 1);
  movers.cluster.levels = {{"leaf", 2, 1, 0.25}, {"spine", 4, 1, 0.5}};
  for (int device = 0; device < 4; ++device) movers.stage({device});
  movers.send(0, 1, 0, 10);
  movers.send(2, 0, 0, 10);
  EXPECT_DOUBLE_EQ(movers.end(0), 1.25);
  EXPECT_DOUBLE_EQ(movers.end(2), 1 + 0.25 + 0.5 + 0.25);
}

TEST(LinkSharing, UnusedDevicesChangeNothing) {
  Movers movers = four_on_two_cards();
  movers.send(0, 2, 0, 100);
  movers.send(1, 3, 0, 40);
  const Replay before = movers.run();
  movers.cluster.nodes = 5;
  movers.program.devices = 10;
  const Replay after = movers.run();
  EXPECT_EQ(after.makespan_seconds, before.makespan_seconds);
  for (std::size_t s = 0; s < 4; ++s) {
    for (std::size_t i = 0; i < before.spans[s].size(); ++i) {
      EXPECT_EQ(after.spans[s][i].end, before.spans[s][i].end);
    }
  }
}

// Whatever the network, nothing is faster than alone, and with room enough everything is as alone.
TEST(LinkSharing, PipelinesOnRandomNetworks) {
  Random random(11);
  for (int trial = 0; trial < 30; ++trial) {
    testing::HandPipeline hand(4, 6, trial % 2 == 0);
    hand.program.devices_per_node = 2;
    for (Stage& stage : hand.program.stages) {
      for (Instruction& instruction : stage.instructions) {
        if (instruction.peer < 0) continue;
        const int from = stage.devices[0];
        const bool crosses = from / 2 != instruction.peer / 2;
        (crosses ? instruction.inter_node_bytes : instruction.intra_node_bytes) = 100;
      }
    }
    const Durations durations = hand.durations(testing::drawn_weights(6), 2, 0.5);
    ClusterSpec cluster = slow_cluster(2, 2);
    cluster.inter_node.bandwidth_bytes_per_second = 200;
    cluster.intra_node.bandwidth_bytes_per_second = 400;
    cluster.network_cards_per_node = 1;
    ReplayOptions options;
    const double alone = replay(hand.program, durations, options).makespan_seconds;
    options.network = std::make_shared<const Topology>(make_topology(cluster, 1e6));
    EXPECT_NEAR(replay(hand.program, durations, options).makespan_seconds, alone, 1e-4);
    cluster.network_card_bytes_per_second = 20 + 200 * random.uniform();
    options.network = std::make_shared<const Topology>(make_topology(cluster));
    EXPECT_GE(replay(hand.program, durations, options).makespan_seconds, alone * (1 - 1e-12));
  }
}

TEST(LinkSharing, WhatCannotBeFilledIsNoResource) {
  Movers movers(4, 8);
  for (int device = 0; device < 32; device += 4) {
    const int stage = movers.stage({device, device + 1, device + 2, device + 3});
    movers.gather(stage, 100, 30);
  }
  const detail::Graph graph = detail::build_graph(movers.program, movers.durations, {});
  const auto share = [&] {
    return detail::share_links(movers.program, graph, make_topology(movers.cluster), 1, {});
  };
  EXPECT_TRUE(share().capacities.empty());
  EXPECT_EQ(share().parts.size(), 8u);
  // A card that a stage has to itself limits it, and then nothing else can be filled.
  movers.cluster.network_cards_per_node = 2;
  EXPECT_TRUE(share().capacities.empty());
  EXPECT_DOUBLE_EQ(movers.end(7), 100 / kInside + 4 * 30 / kBetween);
  // Two stages on one card: one resource a node, and one kind of gathers.
  movers.cluster.network_cards_per_node = 1;
  EXPECT_EQ(share().capacities.size(), 5u);
  EXPECT_EQ(share().kinds(), 4u);
  EXPECT_DOUBLE_EQ(movers.end(7), 100 / kInside + 8 * 30 / kBetween);
  movers.cluster.network_cards_per_node = 8;
  movers.cluster.levels = {{"leaf", 2, 2, 0}};
  const detail::Sharing leaves = share();
  EXPECT_EQ(leaves.kinds(), 2u);            // one a leaf
  EXPECT_EQ(leaves.capacities.size(), 3u);  // its wire down, and the pool of all wires up
}

TEST(LinkSharing, StuckProgramsStillSayWhoWaits) {
  Movers movers = four_on_two_cards();
  movers.send(0, 2, 0, 100);
  movers.program.stages[2].instructions.clear();
  movers.durations.seconds[2].clear();
  try {
    movers.run();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("send_activation of micro-batch 0"),
              std::string::npos);
  }
}

TEST(LinkSharing, DevicesOutsideTheNetwork) {
  Movers movers = four_on_two_cards();
  movers.gather(3, 0, 10);
  movers.cluster.nodes = 1;
  EXPECT_THROW(movers.run(), Error);
  ReplayOptions options;
  options.network = std::make_shared<const Topology>(make_topology(movers.cluster));
  options.program_file = "p.json";
  EXPECT_THROW(replay(movers.program, movers.durations, options), InputError);
}

}  // namespace
}  // namespace hydraulis
