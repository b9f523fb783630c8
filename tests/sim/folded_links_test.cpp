// Replays whose devices are folded into stages against the same device by device.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "tests/sim/flows.h"
#include "tests/sim/moving_program.h"

namespace hydraulis {
namespace {

using Movers = testing::MovingProgram;

// Against an independent sum: sends that all start at once are flows of the topology, device by
// device.
TEST(FoldedLinks, SendsAreFlowsDeviceByDevice) {
  Random random(3);
  for (int trial = 0; trial < 40; ++trial) {
    Movers movers(4, 4);
    movers.cluster.network_cards_per_node = 1 + static_cast<int>(random.next() % 4);
    movers.cluster.levels = {{"leaf", 2, 1 + 3 * random.uniform(), 0}};
    for (int device = 0; device < 16; ++device) movers.stage({device});
    std::vector<Flow> flows;
    for (int from = 0; from < 8; ++from) {
      const int to = 8 + static_cast<int>((static_cast<unsigned>(from) + random.next() % 3) % 8);
      const int bytes = 10 + static_cast<int>(random.next() % 100);
      if (random.next() % 4 == 0) continue;
      movers.send(from, to, 0, bytes);
      flows.push_back({from, to, static_cast<double>(bytes), {}});
    }
    if (flows.empty()) continue;
    // Receives of one stage follow one another in the program, so only single ones are alike.
    std::vector<int> received(16);
    for (const Flow& flow : flows) ++received[static_cast<std::size_t>(flow.destination)];
    if (std::any_of(received.begin(), received.end(), [](int count) { return count > 1; })) {
      continue;
    }
    // A flow alone has min(lane, card); a program's duration is the lane's.
    movers.cluster.network_card_bytes_per_second = 10 + 10 * random.uniform();
    const std::vector<Span> expected = run_flows(flows, make_topology(movers.cluster));
    for (std::size_t i = 0; i < flows.size(); ++i) {
      EXPECT_NEAR(movers.end(flows[i].source), expected[i].end, 1e-9 * expected[i].end);
    }
  }
}

// Pools against what they stand for: every device has a flow from every owner outside its node.
TEST(FoldedLinks, AGatherIsAFlowFromEveryOwner) {
  struct Network {
    int cards;
    double oversubscription;
    bool rails;
  };
  for (const OptimizerLayout& optimizer : {OptimizerLayout{16, 1, 1}, {8, 1, 2}, {4, 1, 4}}) {
    for (const Network& network :
         {Network{4, 1, false}, Network{2, 1, false}, Network{1, 1, false}, Network{4, 2, false},
          Network{4, 5, false}, Network{2, 3, false}, Network{4, 1, true}}) {
      Movers movers(4, 4);
      movers.program.optimizer = optimizer;
      movers.cluster.network_cards_per_node = network.cards;
      movers.cluster.levels = {{"leaf", 2, network.oversubscription, 0}};
      movers.cluster.rails = network.rails;
      std::vector<Flow> flows;
      for (int device = 0; device < 16; ++device) {
        int far = 0;
        for (int owner = 0; owner < optimizer.dp; ++owner) {
          if (owner / 4 == device / 4) continue;
          flows.push_back({owner, device, 10, {}});
          far += 10;
        }
        movers.stage({device});
        movers.gather(device, 0, far);
      }
      double last = 0;
      for (const Span& span : run_flows(flows, make_topology(movers.cluster))) {
        last = std::max(last, span.end);
      }
      EXPECT_NEAR(movers.run().makespan_seconds, last, 1e-9 * last)
          << optimizer.pp << " stages, " << network.cards << " cards, " << network.oversubscription
          << (network.rails ? ", rails" : "");
    }
  }
}

// Stages of four devices, which gather, send to the next stage and reduce, are four of one each.
TEST(FoldedLinks, StagesAreTheirDevices) {
  Random random(17);
  for (int trial = 0; trial < 60; ++trial) {
    Movers folded(4, 8);
    folded.program.optimizer =
        std::vector<OptimizerLayout>{{32, 1, 1}, {16, 1, 2}, {8, 1, 4}}[random.next() % 3];
    folded.cluster.network_cards_per_node = 1 << random.next() % 4;
    folded.cluster.network_card_bytes_per_second = 5 + 20 * random.uniform();
    folded.cluster.levels = {{"leaf", 2, 1 + 3 * random.uniform(), 0.1}};
    folded.cluster.rails = random.next() % 4 == 0;
    Movers unfolded = folded;
    const auto each = [&](int stage, const auto& act) {
      act(folded, stage);
      for (int i = 0; i < 4; ++i) act(unfolded, 4 * stage + i);
    };
    for (int stage = 0; stage < 8; ++stage) {
      folded.stage({4 * stage, 4 * stage + 1, 4 * stage + 2, 4 * stage + 3});
      for (int i = 0; i < 4; ++i) unfolded.stage({4 * stage + i});
    }
    for (int stage = 0; stage < 8; ++stage) {
      const int near = static_cast<int>(random.next() % 100);
      const int far = static_cast<int>(random.next() % 100);
      const int layer = static_cast<int>(random.next() % 32);
      const double more = random.uniform();
      each(stage, [&](Movers& movers, int s) { movers.gather(s, near, far, layer, more); });
      each(stage, [&](Movers& movers, int s) {
        movers.add(s, Op::reduce_gradients, StreamKind::parameters, far, near);
      });
    }
    for (const int stage : {0, 1, 4, 5}) {
      const int bytes = 10 + static_cast<int>(random.next() % 100);
      folded.send(stage, stage + 2, 0, bytes);
      for (int i = 0; i < 4; ++i) unfolded.send(4 * stage + i, 4 * (stage + 2) + i, 0, bytes);
    }
    const Replay few = folded.run();
    const Replay many = unfolded.run();
    for (std::size_t stage = 0; stage < 8; ++stage) {
      for (std::size_t i = 0; i < few.spans[stage].size(); ++i) {
        for (std::size_t device = 4 * stage; device < 4 * stage + 4; ++device) {
          ASSERT_NEAR(few.spans[stage][i].end, many.spans[device][i].end, 1e-6)
              << "trial " << trial << " stage " << stage << " instruction " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace hydraulis
