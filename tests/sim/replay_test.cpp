#include "sim/replay.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "tests/sim/hand_programs.h"

namespace hydraulis {
namespace {

using testing::drawn_weights;
using testing::HandPipeline;

Replay run(const HandPipeline& hand, const std::vector<double>& weights, double ratio,
           double transfer = 0) {
  return replay(hand.program, hand.durations(weights, ratio, transfer));
}

std::vector<double> ones(int count) { return std::vector<double>(count, 1.0); }

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Replay, UnitTimesGiveTheHandSolvedMakespans) {
  struct Case {
    int stages, micro_batches;
    double makespan;
  };
  for (const auto& [stages, micro_batches, makespan] :
       {Case{8, 32, 78}, {8, 1, 16}, {4, 1, 8}, {4, 2, 10}, {4, 3, 12}, {4, 4, 14}, {1, 5, 10}}) {
    for (const bool gpipe : {false, true}) {
      const HandPipeline hand(stages, micro_batches, gpipe);
      const Replay result = run(hand, ones(micro_batches), 1);
      EXPECT_EQ(result.makespan_seconds, makespan) << stages << " x " << micro_batches;
      EXPECT_EQ(result.stages[0].peak_live_micro_batches,
                gpipe ? micro_batches : std::min(stages, micro_batches));
      EXPECT_EQ(result.stages[0].peak_live_tokens,
                1000U * static_cast<unsigned>(result.stages[0].peak_live_micro_batches));
      for (const StageReplay& stage : result.stages) {
        EXPECT_EQ(stage.compute_seconds, 2.0 * micro_batches);
        EXPECT_EQ(stage.idle_seconds, makespan - 2.0 * micro_batches);
        EXPECT_EQ(stage.communication_seconds, 0);
      }
    }
  }
}

TEST(Replay, LaterStagesHoldFewerMicroBatchesUnder1f1b) {
  const Replay result = run(HandPipeline(4, 9, false), ones(9), 2);
  for (int s = 0; s < 4; ++s) EXPECT_EQ(result.stages[s].peak_live_micro_batches, 4 - s);
}

TEST(Replay, BackwardOfTwiceTheForward) {
  EXPECT_EQ(run(HandPipeline(4, 16, false), ones(16), 2).makespan_seconds, 57);
  EXPECT_EQ(run(HandPipeline(8, 64, false), ones(64), 2).makespan_seconds, 213);
}

TEST(Replay, UnequalMicroBatchesAgreeWithThreeIndependentImplementations) {
  EXPECT_NEAR(run(HandPipeline(8, 64, false), drawn_weights(64), 2).makespan_seconds, 322.156896,
              1e-6);
  EXPECT_NEAR(run(HandPipeline(16, 128, false), drawn_weights(128), 2).makespan_seconds, 691.617401,
              1e-6);
}

TEST(Replay, LongestFirstShortensUnequalPipelines) {
  auto few = drawn_weights(64);
  std::sort(few.rbegin(), few.rend());
  EXPECT_NEAR(run(HandPipeline(8, 64, false), few, 2).makespan_seconds, 226.780, 1e-3);
  auto many = drawn_weights(128);
  std::sort(many.rbegin(), many.rend());
  EXPECT_NEAR(run(HandPipeline(16, 128, false), many, 2).makespan_seconds, 461.179, 1e-3);
}

TEST(Replay, TransfersTakeTimeAndDoubleAtHalfTheBandwidth) {
  // One micro-batch over 3 stages: 3 forwards, 2 transfers, 3 backwards, 2 transfers.
  const HandPipeline hand(3, 1, false);
  const Replay fast = run(hand, ones(1), 2, 0.25);
  EXPECT_EQ(fast.makespan_seconds, 9 + 4 * 0.25);
  EXPECT_EQ(fast.stages[1].communication_seconds, 4 * 0.25);
  EXPECT_EQ(fast.stages[1].exposed_communication_seconds, 4 * 0.25);
  EXPECT_EQ(fast.stages[1].idle_seconds, 10 - 3 - 1);
  const Replay slow = run(hand, ones(1), 2, 0.5);
  EXPECT_EQ(slow.makespan_seconds, 9 + 4 * 0.5);
  EXPECT_EQ(slow.stages[1].communication_seconds, 2 * fast.stages[1].communication_seconds);
}

TEST(Replay, TransfersUnderComputationAreNotExposed) {
  // Two stages, two micro-batches under GPipe, forward 1, transfer 0.5. Stage 0 sends the first
  // activation during its second forward; the second one is exposed, and so are the gradients while
  // it has nothing to do.
  const HandPipeline hand(2, 2, true);
  const Replay result = run(hand, ones(2), 1, 0.5);
  // Stage 0: F 0–1, F 1–2. Stage 1: F 1.5–2.5, F 2.5–3.5, B 3.5–4.5, B 4.5–5.5.
  // Gradients: 4.5–5 and 5.5–6. Stage 0: B 5–6, B 6–7.
  EXPECT_EQ(result.makespan_seconds, 7);
  EXPECT_EQ(result.stages[0].communication_seconds, 2.0);
  EXPECT_EQ(result.stages[0].exposed_communication_seconds, 1.0);  // 2–2.5 and 4.5–5
  EXPECT_EQ(result.stages[0].idle_seconds, 2.0);
  EXPECT_EQ(result.stages[1].exposed_communication_seconds, 1.0);  // 1–1.5 and 5.5–6
}

TEST(Replay, ATransferWaitsForTheLinkOfTheOneBefore) {
  // Forwards of 1 and transfers of 3: stage 1 starts at 4, 7, 10.
  const HandPipeline hand(2, 3, true);
  const Replay result = run(hand, ones(3), 1, 3);
  std::vector<double> starts;
  for (std::size_t i = 0; i < result.spans[1].size(); ++i) {
    if (hand.program.stages[1].instructions[i].op == Op::forward) {
      starts.push_back(result.spans[1][i].start);
    }
  }
  EXPECT_EQ(starts, (std::vector<double>{4, 7, 10}));
}

TEST(Replay, AnUnusedDeviceChangesNothingButTheShareOfIdleDevices) {
  HandPipeline hand(4, 6, false);
  const Durations durations = hand.durations(drawn_weights(6), 2, 0.1);
  const Replay before = replay(hand.program, durations);
  const double share = bubble_share(hand.program, before);
  ++hand.program.devices;
  const Replay after = replay(hand.program, durations);
  EXPECT_EQ(before.makespan_seconds, after.makespan_seconds);
  EXPECT_EQ(before.events, after.events);
  for (std::size_t s = 0; s < before.spans.size(); ++s) {
    for (std::size_t i = 0; i < before.spans[s].size(); ++i) {
      EXPECT_EQ(before.spans[s][i].start, after.spans[s][i].start);
      EXPECT_EQ(before.spans[s][i].end, after.spans[s][i].end);
    }
  }
  EXPECT_NEAR(bubble_share(hand.program, after), (4 * share + 1) / 5, 1e-12);
}

TEST(Replay, BubbleShareOfEqualMicroBatchesIsTheClosedForm) {
  const HandPipeline hand(4, 16, false);
  EXPECT_NEAR(bubble_share(hand.program, run(hand, ones(16), 2)), 3.0 / 19.0, 1e-12);
}

Instruction global(Op op, std::vector<int> depends_on) {
  Instruction instruction;
  instruction.op = op;
  instruction.stream = StreamKind::collective;
  instruction.depends_on = std::move(depends_on);
  return instruction;
}

TEST(Replay, GradientNormWaitsForEveryStage) {
  HandPipeline hand(3, 4, false);
  Durations durations = hand.durations(ones(4), 2);
  for (std::size_t s = 0; s < 3; ++s) {
    auto& instructions = hand.program.stages[s].instructions;
    int last = static_cast<int>(instructions.size()) - 1;
    while (instructions[last].op != Op::backward) --last;
    instructions.push_back(global(Op::gradient_norm, {last}));
    durations.seconds[s].push_back(0.5);
  }
  const Replay result = replay(hand.program, durations);
  EXPECT_EQ(result.makespan_seconds, 3 * (4 + 2) + 0.5);
  for (std::size_t s = 0; s < 3; ++s) EXPECT_EQ(result.spans[s].back().start, 18);
}

TEST(Replay, ASendWithoutReceiveNamesWhoWaitsForWhom) {
  HandPipeline hand(3, 2, false);
  // Stage 1 forgets to receive the activation of micro-batch 1.
  auto& instructions = hand.program.stages[1].instructions;
  for (Instruction& instruction : instructions) {
    if (instruction.op == Op::receive_activation && instruction.micro_batch == 1) {
      instruction.op = Op::recompute;
      instruction.stream = StreamKind::compute;
    }
  }
  const Durations durations = hand.durations(ones(2), 2);
  const std::string message = message_of([&] { replay(hand.program, durations); });
  EXPECT_NE(message.find("stage 0 (pipeline 0, stage 0): send_activation of micro-batch 1 "
                         "[instruction 3] waits for stage 1 to receive it; there is no such "
                         "receive"),
            std::string::npos)
      << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
  ReplayOptions options;
  options.program_file = "mine.json";
  EXPECT_THROW(replay(hand.program, durations, options), InputError);
  EXPECT_EQ(message_of([&] { replay(hand.program, durations, options); }).rfind("mine.json: ", 0),
            0U);
}

TEST(Replay, AReceiveWithoutSendAndAllBehindItAreListed) {
  HandPipeline hand(2, 1, false);
  hand.program.stages[0].instructions.erase(hand.program.stages[0].instructions.begin() + 1);
  hand.program.stages[0].instructions[2].depends_on = {1};
  const Durations durations = hand.durations(ones(1), 2);
  const std::string message = message_of([&] { replay(hand.program, durations); });
  EXPECT_NE(message.find("stage 1 (pipeline 0, stage 1): receive_activation of micro-batch 0 "
                         "[instruction 0] waits for stage 0 to send it; there is no such send"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("forward of micro-batch 0 [instruction 1] waits for stage 1"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("stage 0 (pipeline 0, stage 0): receive_gradient of micro-batch 0 "
                         "[instruction 1] waits for stage 1"),
            std::string::npos)
      << message;
}

TEST(Replay, ACollectiveThatLacksAStageIsNamed) {
  HandPipeline hand(3, 1, false);
  for (const int s : {0, 2}) {
    hand.program.stages[s].instructions.push_back(global(Op::gradient_norm, {}));
    hand.program.stages[s].instructions.back().micro_batch = 0;
  }
  const std::string message = message_of([&] { replay(hand.program, hand.durations(ones(1), 2)); });
  EXPECT_NE(message.find("gradient_norm"), std::string::npos) << message;
  EXPECT_NE(message.find("waits for stage 1, which has no such gradient_norm"), std::string::npos)
      << message;
}

TEST(Replay, TransfersInCrossedOrderAreADeadlockAndReported) {
  HandPipeline hand(2, 2, true);
  auto& instructions = hand.program.stages[1].instructions;
  std::swap(instructions[0].micro_batch, instructions[2].micro_batch);
  const std::string message = message_of([&] { replay(hand.program, hand.durations(ones(2), 2)); });
  EXPECT_NE(message.find("stuck: "), std::string::npos) << message;
  EXPECT_EQ(message.find("waits for nothing"), std::string::npos) << message;
}

TEST(Replay, MalformedProgramsAndTimesAreRefused) {
  const HandPipeline good(2, 2, false);
  const Durations durations = good.durations(ones(2), 2);
  const auto refused = [&](const std::function<void(Program&, Durations&)>& damage) {
    Program program = good.program;
    Durations times = durations;
    damage(program, times);
    return message_of([&] { replay(program, times); });
  };
  EXPECT_EQ(refused([](Program&, Durations&) {}), "no error");
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(), -1.0}) {
    EXPECT_NE(refused([&](Program&, Durations& times) {
                times.seconds[1][1] = bad;
              }).find("expected a finite time of at least 0"),
              std::string::npos);
  }
  EXPECT_NE(refused([](Program&, Durations& times) {
              times.seconds[0].pop_back();
            }).find("durations for"),
            std::string::npos);
  EXPECT_NE(refused([](Program&, Durations& times) {
              times.seconds.pop_back();
            }).find("durations of 1 stages for a program of 2"),
            std::string::npos);
  EXPECT_NE(refused([](Program& p, Durations&) {
              p.stages[0].instructions[1].peer = 9;
            }).find("peer is stage 9"),
            std::string::npos);
  EXPECT_NE(refused([](Program& p, Durations&) {
              p.stages[0].instructions[1].peer = 0;
            }).find("peer is stage 0"),
            std::string::npos);
  EXPECT_NE(refused([](Program& p, Durations&) {
              p.stages[0].instructions[1].depends_on = {1};
            }).find("depends on instruction 1"),
            std::string::npos);
  EXPECT_NE(refused([](Program& p, Durations&) {
              p.stages[0].instructions[0].micro_batch = 7;
            }).find("expected a micro-batch in [0, 2)"),
            std::string::npos);
  EXPECT_NE(refused([](Program& p, Durations&) { p.stages[1].pipeline = 3; }).find("pipeline 3"),
            std::string::npos);
}

TEST(Replay, AnEmptyProgramTakesNoTime) {
  const Replay result = replay(Program{}, Durations{});
  EXPECT_EQ(result.makespan_seconds, 0);
  EXPECT_EQ(bubble_share(Program{}, result), 0);
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Replay, TheSameProgramWritesTheSameTimelineByteForByte) {
  const HandPipeline hand(4, 12, false);
  const auto folder = std::filesystem::temp_directory_path();
  std::vector<std::string> written;
  for (const char* name : {"hydraulis_replay_a.json", "hydraulis_replay_b.json"}) {
    const Replay result = run(hand, drawn_weights(12), 2, 0.05);
    const Timeline timeline = make_timeline(hand.program, result);
    EXPECT_EQ(timeline.origin, "simulated");
    double last = 0;
    for (const TimelineEvent& event : timeline.events) last = std::max(last, event.end_seconds);
    EXPECT_EQ(last, result.makespan_seconds);
    write_chrome_trace(timeline, folder / name);
    written.push_back(bytes_of(folder / name));
    std::filesystem::remove(folder / name);
  }
  EXPECT_FALSE(written[0].empty());
  EXPECT_EQ(written[0], written[1]);
}

TEST(Replay, SpansOfOneStreamNeverOverlap) {
  const HandPipeline hand(4, 12, false);
  const Replay result = run(hand, drawn_weights(12), 2, 0.7);
  for (std::size_t s = 0; s < result.spans.size(); ++s) {
    std::vector<double> free(kStreams, 0.0);
    for (std::size_t i = 0; i < result.spans[s].size(); ++i) {
      double& until = free[static_cast<std::size_t>(hand.program.stages[s].instructions[i].stream)];
      EXPECT_GE(result.spans[s][i].start, until);
      until = result.spans[s][i].end;
    }
  }
}

}  // namespace
}  // namespace hydraulis
