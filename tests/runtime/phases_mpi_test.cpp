// Iterations of several phases, between which layouts are switched: length buckets, rounds of rings
// of unequal sizes. Every one against one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/program/verify.h"
#include "tests/runtime/training_course.h"

namespace hydraulis::test {
namespace {

/// Documents longer than `after` and at most `upto` tokens, trained on these pipelines.
struct Bucket {
  int upto;
  std::vector<Scheme> schemes;
  int micro_batches = 1;
};

struct Phases {
  std::string name;
  std::vector<Bucket> buckets;  ///< ascending
  OptimizerLayout optimizer;    ///< devices() 1: dp over all ranks
};
void PrintTo(const Phases& phases, std::ostream* out) { *out << phases.name; }

/// Every bucket's documents dealt over its pipelines and their micro-batches; the last one is the
/// first phase where `longest_first`, as rounds are.
BatchPlan by_bucket(const Documents& documents, const std::vector<Bucket>& buckets,
                    bool longest_first) {
  std::vector<Assigned> pipelines;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const std::size_t at = longest_first ? buckets.size() - 1 - b : b;
    const Bucket& bucket = buckets[at];
    const int after = at == 0 ? 0 : buckets[at - 1].upto;
    const std::size_t first = pipelines.size();
    for (const Scheme& s : bucket.schemes) {
      pipelines.push_back(
          {s, std::vector<std::vector<std::uint64_t>>(bucket.micro_batches), static_cast<int>(b)});
    }
    std::size_t next = 0;
    for (std::size_t id = 0; id < documents.size(); ++id) {
      const auto length = static_cast<int>(documents[id].size());
      if (length <= after || length > bucket.upto) continue;
      Assigned& pipeline = pipelines[first + next % bucket.schemes.size()];
      pipeline.micro_batches[next / bucket.schemes.size() % pipeline.micro_batches.size()]
          .push_back(id);
      ++next;
    }
  }
  for (Assigned& pipeline : pipelines) {
    std::erase_if(pipeline.micro_batches, [](const auto& ids) { return ids.empty(); });
  }
  return assign(documents, pipelines);
}

std::vector<Scheme> several(int count, const Scheme& one) {
  return std::vector<Scheme>(count, one);
}

std::vector<Phases> cases_here() {
  constexpr int kAll = 1000;
  constexpr Recompute kFull = Recompute::full;
  const std::vector<Phases> all = {
      {"single_twice", {{8, {scheme(1, 1, 1)}, 2}, {kAll, {scheme(1, 1, 1, kFull)}}}, {}},
      {"hotspa_tp2",
       {{8, several(2, scheme(1, 1, 1)), 2}, {kAll, {scheme(1, 2, 1)}, 2}},
       {1, 2, 1}},
      {"hotspa_pp2", {{8, {scheme(1, 2, 1)}, 2}, {kAll, {scheme(1, 1, 2)}, 3}}, {1, 1, 2}},
      {"rounds_2", {{8, several(2, scheme(1, 1, 1)), 2}, {kAll, {scheme(2, 1, 1)}}}, {}},
      {"hotspa_three",
       {{5, several(4, scheme(1, 1, 1))},
        {14, several(2, scheme(1, 2, 1)), 2},
        {kAll, {scheme(1, 4, 1)}, 2}},
       {1, 4, 1}},
      {"hotspa_pp4",
       {{5, several(2, scheme(1, 1, 2)), 2},
        {14, several(2, scheme(1, 2, 1)), 2},
        {kAll, {scheme(1, 1, 4)}, 3}},
       {1, 1, 4}},
      {"rounds_4",
       {{5, several(4, scheme(1, 1, 1))},
        {14, {scheme(2, 1, 1), scheme(1, 1, 1), scheme(1, 1, 1)}},
        {kAll, {scheme(4, 1, 1)}, 2}},
       {}},
      {"hotspa_8",
       {{5, several(4, scheme(1, 2, 1))},
        {14, several(2, scheme(1, 2, 2)), 2},
        {kAll, {scheme(2, 4, 1, kFull)}, 2}},
       {2, 4, 1}},
      {"rounds_8",
       {{3, several(8, scheme(1, 1, 1))},
        {9, {scheme(4, 1, 1), scheme(2, 1, 1), scheme(1, 1, 1), scheme(1, 1, 1)}},
        {19, {scheme(2, 1, 1), scheme(2, 1, 1), scheme(4, 1, 1)}},
        {kAll, {scheme(4, 1, 1), scheme(4, 1, 1)}}},
       {}},
      {"rounds_8_tp2",
       {{9, several(4, scheme(1, 2, 1))},
        {kAll, {scheme(2, 2, 1), scheme(1, 2, 1), scheme(1, 2, 1)}}},
       {4, 2, 1}},
      // Half of the ranks keep their layout, the others switch: their gradients go home, and what
      // stays is added to.
      {"mixed_4",
       {{5, {scheme(1, 2, 1), scheme(1, 1, 2)}},
        {14, {scheme(1, 2, 1), scheme(1, 2, 1)}},
        {kAll, {scheme(1, 2, 1), scheme(1, 1, 1), scheme(1, 1, 1)}}},
       {}},
  };
  std::vector<Phases> here;
  for (const Phases& phases : all) {
    if (devices_of({phases.buckets.front().schemes, 1, {}}) == mpi_process().world->size()) {
      here.push_back(phases);
    }
  }
  return here;
}

class InPhases : public testing::TestWithParam<Phases> {
 protected:
  static OptimizerLayout optimizer() {
    return optimizer_for({{}, 1, GetParam().optimizer}, mpi_process().world->size());
  }
};

TEST_P(InPhases, TheLossesAndParametersAreOneDevices) {
  for (const bool tied : {false, true}) {
    DecoderSpec decoder = small_decoder();
    decoder.shape.tied_embeddings = tied;
    Trainee trainee(*mpi_process().world, DataType::f64, decoder, optimizer());
    const Course course = train(trainee, decoder, [&](int step, const Documents& documents) {
      const BatchPlan plan = by_bucket(documents, GetParam().buckets, step % 2 == 1);
      if (step < 2) {
        EXPECT_THAT(verify(trainee.program_of(plan)), testing::IsEmpty());
      }
      return plan;
    });
    expect_same(course, course_alone(DataType::f64, decoder), 1e-9, 1e-9, 1e-9);
  }
}

TEST_P(InPhases, EveryTokenIsCountedOnce) {
  const DecoderSpec decoder = small_decoder();
  const Documents documents = random_documents(kCourseLengths, decoder.shape.vocab, 5);
  const BatchPlan plan = by_bucket(documents, GetParam().buckets, false);
  Trainee trainee(*mpi_process().world, DataType::f64, decoder, optimizer());
  Trainee one(alone(), DataType::f64, decoder, {});
  const auto losses = trainee.token_losses(documents, plan);
  const auto expected = one.token_losses(documents, deal(documents, {{scheme(1, 1, 1)}, 1, {}}));
  for (std::size_t id = 0; id < documents.size(); ++id) {
    EXPECT_THAT(losses[id],
                testing::Pointwise(testing::NanSensitiveDoubleNear(1e-11), expected[id]));
  }
}

/// Bytes that ranks send as parameters and as gradients are those of the program's transfers.
TEST_P(InPhases, WhatMovesIsWhatTheProgramCounts) {
  const DecoderSpec decoder = small_decoder();
  const Documents documents = random_documents(kCourseLengths, decoder.shape.vocab, 5);
  const BatchPlan plan = by_bucket(documents, GetParam().buckets, true);
  Communicator& world = *mpi_process().world;
  Trainee trainee(world, DataType::f32, decoder, optimizer());
  const Program program = trainee.program_of(plan);
  trainee.accumulate(documents, plan);
  world.reset_traffic();
  trainee.accumulate(documents, plan);
  const Traffic sent = world.traffic();
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  for (const PhaseTransfers& phase : phase_transfers(decoder.shape, program, world.rank())) {
    for (const auto& [layer, moved] : phase.gather) {
      for (const Transfer& give : moved.gives) parameters += give.bytes;
    }
    for (const auto& [layer, moved] : phase.reduce) {
      for (const Transfer& take : moved.takes) gradients += take.bytes;
    }
  }
  // The program counts two bytes a number.
  EXPECT_EQ(sent.point_to_point[static_cast<int>(Channel::parameters)], 2 * parameters);
  EXPECT_EQ(sent.point_to_point[static_cast<int>(Channel::reduction)], 2 * gradients);
  // A stage's instructions say what its busiest device receives, and sends as gradients.
  for (const Stage& stage : program.stages) {
    if (stage.devices.size() != 1 || stage.devices.front() != world.rank()) continue;
    std::int64_t received = 0;
    std::int64_t counted = 0;
    const int phase = program.pipelines[stage.pipeline].phase;
    const auto all = phase_transfers(decoder.shape, program, world.rank());
    for (const auto& [layer, moved] : all[static_cast<std::size_t>(phase)].gather) {
      for (const Transfer& take : moved.takes) received += take.bytes;
    }
    for (const Instruction& instruction : stage.instructions) {
      if (instruction.op != Op::gather_parameters) continue;
      counted += instruction.intra_node_bytes + instruction.inter_node_bytes;
    }
    EXPECT_EQ(received, counted);
  }
}

/// Every instruction of the program has its event, the switch among them, on the rank that reports
/// the stage.
TEST_P(InPhases, TheTimelineHoldsEveryInstruction) {
  const DecoderSpec decoder = small_decoder();
  const Documents documents = random_documents(kCourseLengths, decoder.shape.vocab, 5);
  const BatchPlan plan = by_bucket(documents, GetParam().buckets, false);
  Communicator& world = *mpi_process().world;
  Trainee trainee(world, DataType::f32, decoder, optimizer());
  const Program program = trainee.program_of(plan);
  ExecuteOptions options;
  options.record_events = true;
  IterationOutcome mine;
  train_step(trainee.backend(), trainee.executor(), trainee.shard(), program,
             token_source(program, documents), {}, options, &mine);
  std::map<std::pair<int, int>, const TimelineEvent*> events;
  for (const TimelineEvent& event : mine.events) {
    EXPECT_TRUE(events.emplace(std::pair(event.stage, event.instruction), &event).second);
    EXPECT_LE(event.start_seconds, event.end_seconds);
  }
  std::vector<double> phase_end(static_cast<std::size_t>(plan.phases()), 0.0);
  for (int s = 0; s < static_cast<int>(program.stages.size()); ++s) {
    const Stage& stage = program.stages[static_cast<std::size_t>(s)];
    if (stage.devices.front() != world.rank()) continue;
    const auto phase = static_cast<std::size_t>(program.pipelines[stage.pipeline].phase);
    for (int i = 0; i < static_cast<int>(stage.instructions.size()); ++i) {
      const auto found = events.find({s, i});
      ASSERT_NE(found, events.end()) << "stage " << s << ", instruction " << i;
      const TimelineEvent& event = *found->second;
      EXPECT_EQ(event.op, stage.instructions[static_cast<std::size_t>(i)].op);
      if (event.op == Op::forward || event.op == Op::gather_parameters) {
        for (std::size_t before = 0; before < phase; ++before) {
          EXPECT_GE(event.start_seconds, phase_end[before]);
        }
      }
      if (event.op == Op::backward || event.op == Op::reduce_gradients) {
        phase_end[phase] = std::max(phase_end[phase], event.end_seconds);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, InPhases, testing::ValuesIn(cases_here()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace hydraulis::test
