#include "planner/program/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/planner/program/program_fixture.h"

namespace hydraulis {
namespace {

using testing::pipeline_plan;
using testing::scheme;

class VerifyProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    cost = testing::cost_model(testing::tiny_model(), 4, 4, {4, 4, 1});
    // Stages 0 to 3, then 4 and 5, then 6.
    plan.pipelines = {pipeline_plan(scheme(1, 1, 4), {64, 48, 32, 32, 16}),
                      pipeline_plan(scheme(1, 2, 2), {96, 80}, 5),
                      pipeline_plan(scheme(2, 2, 1), {100}, 7)};
    program = lower(plan, cost);
    for (const PipelinePlan& pipeline : plan.pipelines) {
      for (const MicroBatch& m : pipeline.micro_batches) {
        batch.ids.push_back(m.sequence_ids[0]);
        batch.lengths.push_back(m.lengths[0]);
      }
    }
    ASSERT_EQ(verify(program, cost, &batch), std::vector<std::string>{});
  }

  Instruction& find(int stage, Op op, int micro_batch) {
    return program.stages[stage].instructions[index(stage, op, micro_batch)];
  }
  int index(int stage, Op op, int micro_batch) const {
    const auto& list = program.stages[stage].instructions;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].op == op && list[i].micro_batch == micro_batch) return static_cast<int>(i);
    }
    ADD_FAILURE() << "no such instruction";
    return 0;
  }

  /// Takes an instruction out; what depended on it depends on nothing instead.
  void remove(int stage, int at) {
    auto& list = program.stages[stage].instructions;
    list.erase(list.begin() + at);
    for (Instruction& i : list) {
      std::erase(i.depends_on, at);
      for (int& d : i.depends_on) d -= d > at;
    }
  }

  void expect_problem(const std::string& part) const {
    const std::vector<std::string> problems = verify(program, cost, &batch);
    const bool found = std::any_of(problems.begin(), problems.end(), [&](const std::string& p) {
      return p.find(part) != std::string::npos;
    });
    std::string all;
    for (const std::string& problem : problems) all += problem + "\n";
    EXPECT_TRUE(found) << "expected: " << part << "\nfound:\n" << all;
  }

  CostModel cost;
  BatchPlan plan;
  Program program;
  Batch batch;
};

TEST_F(VerifyProgram, AcceptsEverySchedule) {
  for (const Schedule schedule : {Schedule::one_f_one_b, Schedule::gpipe}) {
    for (int stages = 1; stages <= 4; ++stages) {
      for (int micro_batches = 0; micro_batches <= 6; ++micro_batches) {
        BatchPlan one;
        one.pipelines = {
            pipeline_plan(scheme(1, 2, stages), std::vector<std::uint32_t>(micro_batches, 32)),
            pipeline_plan(scheme(1, 4, 1), {16}, 100)};
        EXPECT_EQ(verify(lower(one, cost, {schedule}), cost), std::vector<std::string>{})
            << stages << " stages, " << micro_batches << " micro-batches";
      }
    }
  }
}

TEST_F(VerifyProgram, SendWithoutReceive) {
  remove(1, index(1, Op::receive_activation, 4));
  expect_problem("messages: stage 0 (pipeline 0): send_activation of micro-batch 4");
  expect_problem("work: stage 1 has receive_activation of micro-batch 4 0 times");
  expect_problem("a receive_activation on stage 1 that does not exist");
}

TEST_F(VerifyProgram, ReceiveWithoutSend) {
  remove(5, index(5, Op::send_gradient, 1));
  expect_problem("messages: stage 4 (pipeline 1): receive_gradient of micro-batch 1");
  expect_problem("waits for a send_gradient on stage 5 that does not exist");
}

TEST_F(VerifyProgram, MessageOfAnotherSizeOrOrder) {
  find(2, Op::send_activation, 1).inter_node_bytes += 2;
  expect_problem("messages: stage 2 (pipeline 0): send_activation of micro-batch 1");
  find(2, Op::send_activation, 1).inter_node_bytes -= 2;
  std::swap(find(0, Op::send_activation, 0).micro_batch,
            find(0, Op::send_activation, 1).micro_batch);
  expect_problem("which is another micro-batch");
}

TEST_F(VerifyProgram, WaitingInACircleIsListed) {
  // Stage 4 wants the gradient before it sends what the gradient is made of.
  auto& list = program.stages[4].instructions;
  const int send = index(4, Op::send_activation, 0);
  const int receive = index(4, Op::receive_gradient, 0);
  ASSERT_LT(send, receive);
  Instruction moved = list[receive];
  for (Instruction& i : list) {
    for (int& d : i.depends_on) {
      if (d == receive) {
        d = send;
      } else if (d >= send && d < receive) {
        ++d;
      }
    }
  }
  list.erase(list.begin() + receive);
  list.insert(list.begin() + send, moved);
  list[send + 1].depends_on.push_back(send);
  expect_problem("deadlock: a circle of waiting");
  expect_problem("deadlock: stage 4 (pipeline 1): receive_gradient of micro-batch 0");
}

TEST_F(VerifyProgram, CollectiveThatOneStageNeverJoins) {
  remove(6, index(6, Op::gradient_norm, -1));
  expect_problem("stage 6, which never comes to a gradient_norm");
  expect_problem("communicators: stages 0 and 6");
}

TEST_F(VerifyProgram, ContradictingLaunchOrders) {
  auto& list = program.stages[6].instructions;
  ASSERT_EQ(list[1].op, Op::gather_parameters);
  std::swap(list[1], list[2]);  // layers 0 and 1; pipelines 0 and 1 gather them in order
  expect_problem("communicators: stages launch these in orders that contradict");
}

TEST_F(VerifyProgram, ForwardWithoutBackward) {
  remove(3, index(3, Op::backward, 2));
  expect_problem("work: stage 3 has backward of micro-batch 2 0 times");
}

TEST_F(VerifyProgram, BackwardTwice) {
  find(6, Op::optimizer_step, -1).op = Op::backward;
  program.stages[6].instructions.back().micro_batch = 0;
  expect_problem("work: stage 6 has backward of micro-batch 0 2 times");
  expect_problem("work: stage 6 has optimizer_step 0 times");
}

TEST_F(VerifyProgram, BackwardBeforeForward) {
  std::swap(find(6, Op::forward, 0).op, find(6, Op::backward, 0).op);
  expect_problem("does not wait for stage 6 (pipeline 2): forward");
}

TEST_F(VerifyProgram, UseBeforeArrival) {
  Instruction& forward = find(1, Op::forward, 1);
  std::erase(forward.depends_on, index(1, Op::receive_activation, 1));
  expect_problem("forward of micro-batch 1");
  expect_problem("does not wait for stage 1 (pipeline 0): receive_activation of micro-batch 1");
}

TEST_F(VerifyProgram, ComputeBeforeItsParameters) {
  find(0, Op::forward, 0).depends_on.clear();
  expect_problem("does not wait for stage 0 (pipeline 0): gather_parameters");
}

TEST_F(VerifyProgram, ReductionBeforeTheLastBackward) {
  for (Instruction& i : program.stages[4].instructions) {
    if (i.op == Op::reduce_gradients) i.depends_on.clear();
  }
  expect_problem("does not wait for stage 4 (pipeline 1): backward of micro-batch 1");
}

TEST_F(VerifyProgram, LayerLostOrDoubled) {
  ++program.stages[1].layer_begin;
  expect_problem("layers: pipeline 0 has layer 1 0 times");
  program.stages[1].layer_begin -= 2;
  expect_problem("layers: pipeline 0 has layer 0 2 times");
}

TEST_F(VerifyProgram, LayerGatheredNeverOrReducedTwice) {
  remove(6, 2);
  expect_problem("layers: stage 6 gathers layer 1 0 times");
  program.stages[5].instructions.push_back(
      program.stages[5].instructions[index(5, Op::reduce_gradients, -1)]);
  expect_problem("and reduces it 2 times");
}

TEST_F(VerifyProgram, EmbeddingMissing) {
  program.stages[0].has_embedding = false;
  expect_problem("layers: stage 0 of pipeline 0 has embedding false");
}

TEST_F(VerifyProgram, DeviceTwiceOrOutside) {
  program.stages[1].devices[0] = program.stages[0].devices[0];
  expect_problem("serves stages 0 and 1");
  program.stages[1].devices[0] = 16;
  expect_problem("places: stage 1 uses device 16");
  program.stages[1].devices = {1, 2};
  expect_problem("places: stage 1 has 2 devices");
}

TEST_F(VerifyProgram, BrokenReferences) {
  find(1, Op::forward, 1).depends_on.push_back(1000);
  expect_problem("depends on instruction 1000");
  find(1, Op::forward, 1).depends_on.pop_back();
  find(1, Op::send_activation, 1).peer = 5;
  expect_problem("has stage 5 as its peer");
  find(1, Op::send_activation, 1).peer = 2;
  find(1, Op::backward, 1).micro_batch = 5;
  expect_problem("names a micro-batch outside");
  program.pipelines[1].first_stage = 3;
  expect_problem("structure: pipeline 1");
}

TEST_F(VerifyProgram, MicroBatchTooLong) {
  const auto limit = static_cast<std::uint64_t>(max_tokens(cost, scheme(1, 1, 4)));
  ASSERT_GT(limit, 64u);
  program.pipelines[0].micro_batches[0].padding = limit - 64;
  EXPECT_EQ(verify(program, cost, &batch), std::vector<std::string>{});
  ++program.pipelines[0].micro_batches[0].padding;
  expect_problem("tokens, 1 over the limit of");
}

TEST_F(VerifyProgram, TooManyTokensAlive) {
  // Each micro-batch fits; GPipe keeps all of them at once.
  const auto limit = static_cast<std::uint32_t>(max_tokens(cost, scheme(1, 1, 2)));
  BatchPlan long_plan;
  long_plan.pipelines = {pipeline_plan(scheme(1, 1, 2), std::vector<std::uint32_t>(5, limit))};
  EXPECT_TRUE(verify(lower(long_plan, cost), cost).empty());
  const auto problems = verify(lower(long_plan, cost, {Schedule::gpipe}), cost);
  ASSERT_FALSE(problems.empty());
  EXPECT_NE(problems[0].find("tokens of 5 micro-batches are alive at once"), std::string::npos)
      << problems[0];
}

TEST_F(VerifyProgram, ComposedMemoryCountsBytes) {
  cost.memory = MemoryModel::composed;
  cost.profile.memory.device_bound_bytes = 0;
  const double needed = [&] {
    double most = 0;
    for (int s = 0; s < 4; ++s) {
      // 1F1B keeps the first 4 − s micro-batches of 64, 48, 32, 32 tokens, or later ones.
      const double alive[] = {176, 144, 112, 64};
      most = std::max(most, stage_memory(cost, scheme(1, 1, 4), s, alive[s], 64).total());
    }
    return most;
  }();
  cost.cluster.device.memory_bytes = needed + 1e6;
  EXPECT_TRUE(verify(program, cost).empty());
  cost.cluster.device.memory_bytes = needed - 1;
  expect_problem("memory: stage");
}

TEST_F(VerifyProgram, SequencesLostDoubledStrangeOrCut) {
  std::vector<MicroBatch>& own = program.pipelines[0].micro_batches;
  own[0].sequence_ids[0] = 99;
  expect_problem("trains sequence 99, which the batch does not have");
  expect_problem("no pipeline trains sequence 0");
  own[0].sequence_ids[0] = 6;
  own[0].lengths[0] = 80;
  expect_problem("sequence 6 is trained twice (pipelines 0 and 1)");
  own[0].sequence_ids[0] = 0;
  expect_problem("trains sequence 0 with 80 tokens, the batch has 64");
  own[0].lengths.push_back(1);
  expect_problem("has 1 ids and 2 lengths");
}

TEST_F(VerifyProgram, KeepsAHundredProblems) {
  batch.ids.clear();
  batch.lengths.clear();
  for (std::uint64_t id = 1000; id < 1300; ++id) {
    batch.ids.push_back(id);
    batch.lengths.push_back(1);
  }
  const auto problems = verify(program, cost, &batch);
  EXPECT_EQ(problems.size(), 101u);
  EXPECT_EQ(problems.back(), "and 208 more problems");
}

}  // namespace
}  // namespace hydraulis
