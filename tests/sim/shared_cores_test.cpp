// Replays of programs whose devices are processes that share the cores of their node.
#include <gtest/gtest.h>

#include <vector>

#include "sim/replay.h"

namespace hydraulis {
namespace {

/// Pipelines of one stage on one device each, one instruction of `seconds` on the compute stream.
struct Alone {
  Program program;
  Durations durations;

  explicit Alone(const std::vector<double>& seconds, int devices_per_node = 0) {
    program.devices = static_cast<int>(seconds.size());
    program.devices_per_node = devices_per_node > 0 ? devices_per_node : program.devices;
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      PipelineProgram pipeline;
      pipeline.first_stage = static_cast<int>(i);
      pipeline.micro_batches = {{{i}, {100}, 0}};
      program.pipelines.push_back(pipeline);
      Stage stage;
      stage.pipeline = static_cast<int>(i);
      stage.devices = {static_cast<int>(i)};
      stage.instructions.resize(1);
      stage.instructions[0].op = Op::forward;
      stage.instructions[0].micro_batch = 0;
      program.stages.push_back(stage);
      durations.seconds.push_back({seconds[i]});
    }
  }

  std::vector<double> ends(int cores) const {
    ReplayOptions options;
    options.cores_per_node = cores;
    const Replay replayed = replay(program, durations, options);
    std::vector<double> ends;
    for (const auto& spans : replayed.spans) ends.push_back(spans[0].end);
    return ends;
  }
};

TEST(SharedCores, AsManyCoresAsDevicesChangeNothing) {
  const Alone three({1, 2, 5});
  EXPECT_EQ(three.ends(0), (std::vector<double>{1, 2, 5}));
  EXPECT_EQ(three.ends(3), (std::vector<double>{1, 2, 5}));
  EXPECT_EQ(three.ends(3000), (std::vector<double>{1, 2, 5}));
}

// One core, work of 1, 2 and 5: a third each until 3; the others have 1 and 4 left, half each until
// 5; the last has 3 left and ends at 8.
TEST(SharedCores, OneCoreIsSharedEqually) {
  const std::vector<double> ends = Alone({1, 2, 5}).ends(1);
  EXPECT_DOUBLE_EQ(ends[0], 3);
  EXPECT_DOUBLE_EQ(ends[1], 5);
  EXPECT_DOUBLE_EQ(ends[2], 8);
}

// Two cores for three: rates of 2/3 until 1.5; then one core each.
TEST(SharedCores, TwoCoresForThreeDevices) {
  const std::vector<double> ends = Alone({1, 2, 5}).ends(2);
  EXPECT_DOUBLE_EQ(ends[0], 1.5);
  EXPECT_DOUBLE_EQ(ends[1], 2.5);
  EXPECT_DOUBLE_EQ(ends[2], 5.5);
}

TEST(SharedCores, NodesDoNotShare) {
  const std::vector<double> ends = Alone({1, 1, 4, 1}, 2).ends(1);
  EXPECT_DOUBLE_EQ(ends[0], 2);
  EXPECT_DOUBLE_EQ(ends[1], 2);
  EXPECT_DOUBLE_EQ(ends[2], 5);
  EXPECT_DOUBLE_EQ(ends[3], 2);
}

// A stage of two devices beside one of one device on two cores: all three want a core, so each
// runs at 2/3; the pair's work of 2 has 2/3 left when the other's of 4/3 … both at the same rate.
TEST(SharedCores, AStageTakesACoreForEachOfItsDevices) {
  Alone two({2, 1});
  two.program.devices = 3;
  two.program.devices_per_node = 3;
  two.program.pipelines[0].scheme.tp = 2;
  two.program.stages[0].devices = {0, 1};
  two.program.stages[1].devices = {2};
  const std::vector<double> ends = two.ends(2);
  EXPECT_DOUBLE_EQ(ends[1], 1.5);      // 1 at 2/3
  EXPECT_DOUBLE_EQ(ends[0], 1.5 + 1);  // 1 of 2 is left, and there are two cores for it
}

/// A device that computes for 2 s while it moves data for 1 s.
Alone computing_and_moving() {
  Alone one({2});
  Instruction move;
  move.op = Op::gather_parameters;
  move.stream = StreamKind::parameters;
  one.program.stages[0].instructions.push_back(move);
  one.durations.seconds[0].push_back(1);
  return one;
}

TEST(SharedCores, ADeviceMovesItsDataWithItsOwnCore) {
  const Alone one = computing_and_moving();
  ReplayOptions options;
  options.cores_per_node = 1;
  const Replay shared = replay(one.program, one.durations, options);
  EXPECT_DOUBLE_EQ(shared.spans[0][1].end, 2);  // at half speed
  EXPECT_DOUBLE_EQ(shared.makespan_seconds, 3);
  EXPECT_DOUBLE_EQ(replay(one.program, one.durations).makespan_seconds, 2);
}

// With four cores for one device, moving takes one of them: computing wants 4, moving 1, together
// 5/4 of what there is, so both run at 4/5. Moving ends at 1.25 with 1 of 2 s computed.
TEST(SharedCores, MovingDataTakesOneOfADevicesThreads) {
  const Alone one = computing_and_moving();
  ReplayOptions options;
  options.cores_per_node = 4;
  const Replay shared = replay(one.program, one.durations, options);
  EXPECT_DOUBLE_EQ(shared.spans[0][1].end, 1.25);
  EXPECT_DOUBLE_EQ(shared.makespan_seconds, 2.25);
}

TEST(SharedCores, WorkOfNoTimeEndsAtOnce) {
  const std::vector<double> ends = Alone({0, 2, 0}).ends(1);
  EXPECT_EQ(ends[0], 0);
  EXPECT_EQ(ends[2], 0);
  EXPECT_DOUBLE_EQ(ends[1], 2);
}

}  // namespace
}  // namespace hydraulis
