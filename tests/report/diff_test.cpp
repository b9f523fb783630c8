#include "report/diff.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr double kNear = 1e-12;

void add(Timeline& timeline, int iteration, int stage, int instruction, Op op, StreamKind stream,
         int micro_batch, double start, double end) {
  timeline.events.push_back({iteration, stage, instruction, op, stream, micro_batch, start, end});
}

/// Two stages of one pipeline, one micro-batch, iterations 0 to `iterations` − 1. The forwards take
/// `forward` seconds, the backwards 2, sending 0.5 each way.
Timeline timeline(const std::string& origin, double forward, int iterations = 1) {
  Timeline result;
  result.origin = origin;
  result.model_name = "tiny";
  result.tracks = {{0, 0, "(1,1,2)", {0}}, {0, 1, "(1,1,2)", {1}}};
  double t = 0;
  for (int i = 0; i < iterations; ++i) {
    const double sent = t + forward + 0.5;
    const double back = sent + forward + 2;
    add(result, i, 0, 0, Op::forward, StreamKind::compute, 0, t, t + forward);
    add(result, i, 0, 1, Op::send_activation, StreamKind::activation_send, 0, t + forward, sent);
    add(result, i, 1, 0, Op::forward, StreamKind::compute, 0, sent, sent + forward);
    add(result, i, 1, 1, Op::backward, StreamKind::compute, 0, sent + forward, back);
    add(result, i, 0, 2, Op::backward, StreamKind::compute, 0, back + 0.5, back + 2.5);
    t = back + 2.5;
  }
  return result;
}

const GroupDifference& named(const std::vector<GroupDifference>& groups, const std::string& name) {
  for (const GroupDifference& group : groups) {
    if (group.name == name) return group;
  }
  throw InputError("no group {}", name);
}

std::string refusal(const Timeline& predicted, const Timeline& measured, int offset = 0) {
  try {
    diff(predicted, measured, {.offset = offset});
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "expected '" << part << "' in '" << text << "'";
}

TEST(Diff, EqualTimelinesDoNotDiffer) {
  const Json json = diff_report(diff(timeline("simulated", 1, 3), timeline("measured", 1, 3))).json;
  EXPECT_EQ(json.at("mean_abs_error"), 0.0);
  EXPECT_EQ(json.at("p95_abs_error"), 0.0);
  EXPECT_EQ(json.at("iterations").size(), 3u);
  for (const auto& [kind, values] : json.at("by_kind").items()) {
    EXPECT_EQ(values.at("mean_abs_error"), 0.0) << kind;
  }
}

// Forwards predicted at 1 s took 1.5 s: 7 s of an iteration instead of 8 s.
TEST(Diff, FindsWhichKindStageAndMicroBatchIsOff) {
  const TimelineDifference found = diff(timeline("simulated", 1, 2), timeline("measured", 1.5, 2));
  ASSERT_EQ(found.iterations.size(), 2u);
  EXPECT_NEAR(found.iterations[1].predicted_seconds, 7, kNear);
  EXPECT_NEAR(found.iterations[1].measured_seconds, 8, kNear);
  const GroupDifference& forward = named(found.by_kind, "forward");
  EXPECT_EQ(forward.count, 4);
  EXPECT_NEAR(forward.predicted_seconds, 4, kNear);
  EXPECT_NEAR(forward.measured_seconds, 6, kNear);
  EXPECT_NEAR(forward.absolute_seconds, 2, kNear);
  EXPECT_NEAR(named(found.by_kind, "backward").absolute_seconds, 0, kNear);
  EXPECT_NEAR(named(found.by_stage, "1").measured_seconds, 7, kNear);
  EXPECT_NEAR(named(found.by_micro_batch, "0/0").predicted_seconds, 12, kNear);

  const Json json = diff_report(found).json;
  EXPECT_NEAR(json.at("mean_abs_error").get<double>(), 0.125, kNear);
  EXPECT_NEAR(json.at("mean_error").get<double>(), -0.125, kNear);
  EXPECT_NEAR(json.at("by_kind").at("forward").at("error").get<double>(), -1.0 / 3, kNear);
  EXPECT_EQ(json.at("by_stage").size(), 2u);
}

// What a stage's compute stream does adds up to the iteration, and so do the causes to its error.
TEST(Diff, CausesOfAStageAddUpToTheIterationsError) {
  const TimelineDifference found = diff(timeline("simulated", 1, 3), timeline("measured", 1.5, 3));
  for (const int stage : {0, 1}) {
    double sum = 0;
    for (const Cause& cause : found.causes) sum += cause.stage == stage ? cause.difference() : 0;
    EXPECT_NEAR(sum, -1, kNear) << stage;
  }
  EXPECT_NEAR(found.causes.front().difference(), -0.5, kNear);
  bool waits = false;
  for (const Cause& cause : found.causes) waits = waits || cause.name == "waiting";
  EXPECT_TRUE(waits);
}

TEST(Diff, ThePercentileIsThatOfTheIterations) {
  Timeline predicted = timeline("simulated", 1, 40);
  const Timeline measured = timeline("measured", 1, 40);
  // Three of forty iterations end late: 95 % of them lie at or below the rank of the 38th.
  for (TimelineEvent& event : predicted.events) {
    if (event.iteration >= 37 && event.op == Op::backward && event.stage == 0) {
      event.end_seconds += 0.7;
    }
  }
  const Json json = diff_report(diff(predicted, measured)).json;
  EXPECT_NEAR(json.at("p95_abs_error").get<double>(), 0.1, 1e-9);
  EXPECT_NEAR(json.at("mean_abs_error").get<double>(), 0.1 * 3 / 40, 1e-9);
}

TEST(Diff, TheOrderOfEventsDoesNotMatter) {
  Timeline shuffled = timeline("measured", 1.5, 2);
  std::swap(shuffled.events.front(), shuffled.events.back());
  EXPECT_EQ(diff_report(diff(timeline("simulated", 1, 2), shuffled)).json,
            diff_report(diff(timeline("simulated", 1, 2), timeline("measured", 1.5, 2))).json);
}

TEST(Diff, OtherProgramsAreRefusedAtTheFirstInstructionThatDiffers) {
  const Timeline predicted = timeline("simulated", 1, 2);
  Timeline other = timeline("measured", 1, 2);
  other.events[6].micro_batch = 3;  // iteration 1, stage 0, instruction 1
  expect_part(refusal(predicted, other),
              "iteration 1, stage 0, instruction 1 is send_activation of micro-batch 0 in the "
              "predicted one and send_activation of micro-batch 3 in the measured one");
  other = timeline("measured", 1, 2);
  other.events.pop_back();
  expect_part(refusal(predicted, other),
              "iteration 1, stage 0, instruction 2 (backward of micro-batch 0) is only in the "
              "predicted one");
  expect_part(refusal(other, predicted), "is only in the measured one");
  other = timeline("measured", 1, 2);
  other.tracks[1].scheme = "(1,2,2)";
  expect_part(refusal(predicted, other),
              "iteration 0 stage 1 is of pipeline 0 with scheme (1,1,2)");
}

// The runtime's timelines end with the reduction of gradients.
TEST(Diff, TheOptimizersPartIsLeftOutWhenOnlyOneHasIt) {
  Timeline predicted = timeline("simulated", 1);
  add(predicted, 0, 0, 3, Op::optimizer_step, StreamKind::compute, -1, 7, 9);
  const TimelineDifference found = diff(predicted, timeline("measured", 1));
  EXPECT_NEAR(found.iterations[0].predicted_seconds, 7, kNear);
  expect_part(found.notes.back(), "optimizer_step is in one of the timelines only");
  const TimelineDifference both = diff(predicted, predicted);
  EXPECT_NEAR(both.iterations[0].predicted_seconds, 9, kNear);
  EXPECT_NEAR(named(both.by_kind, "optimizer_step").measured_seconds, 2, kNear);
}

TEST(Diff, RefusesWhatCannotBeLinedUp) {
  const Timeline one = timeline("simulated", 1);
  Timeline twice = one;
  twice.events.push_back(twice.events[0]);
  expect_part(refusal(one, twice), "measured timeline: iteration 0, stage 0, instruction 0 stands");
  expect_part(refusal(one, timeline("measured", 1), 5), "no iteration in common");
  Timeline empty = one;
  empty.events.clear();
  expect_part(refusal(one, empty), "measured none");
  Timeline instant = one;
  for (TimelineEvent& event : instant.events) event.start_seconds = event.end_seconds = 0;
  expect_part(refusal(one, instant), "takes no time");
}

TEST(Diff, AnOffsetLaysIterationsSideBySide) {
  Timeline later = timeline("measured", 1.5);
  for (TimelineEvent& event : later.events) event.iteration = 5;
  const TimelineDifference found = diff(timeline("simulated", 1), later, {.offset = 5});
  ASSERT_EQ(found.iterations.size(), 1u);
  EXPECT_EQ(found.iterations[0].iteration, 5);
  EXPECT_NEAR(found.iterations[0].error(), -0.125, kNear);
}

// Strategies that change have tracks of their own; a prediction of one iteration has only those.
TEST(Diff, StrategiesThatChangeAreLaidSideBySide) {
  Timeline measured = timeline("measured", 1, 2);
  measured.tracks.push_back({0, 0, "(1,1,1)", {0}});
  measured.tracks.push_back({1, 0, "(1,1,1)", {1}});
  add(measured, 2, 2, 0, Op::forward, StreamKind::compute, 0, 20, 22);
  add(measured, 2, 3, 0, Op::forward, StreamKind::compute, 0, 20, 23);
  Timeline predicted = measured;
  predicted.origin = "simulated";
  const TimelineDifference all = diff(predicted, measured);
  EXPECT_EQ(all.iterations.size(), 3u);
  EXPECT_EQ(named(all.by_micro_batch, "1/0").measured_seconds, 3);
  predicted.tracks.erase(predicted.tracks.begin(), predicted.tracks.begin() + 2);
  predicted.events.erase(predicted.events.begin(), predicted.events.end() - 2);
  for (TimelineEvent& event : predicted.events) event.stage -= 2;
  const TimelineDifference one = diff(predicted, measured);
  ASSERT_EQ(one.iterations.size(), 1u);
  EXPECT_EQ(one.iterations[0].error(), 0);
  predicted.tracks[1].scheme = "(1,2,1)";
  expect_part(refusal(predicted, measured), "iteration 2 stage 1 is of pipeline 1");
}

TEST(Diff, SkipsWarmUp) {
  Timeline measured = timeline("measured", 1);
  Timeline predicted = timeline("simulated", 1);
  const Timeline slow = timeline("measured", 3);
  const double first = measured.events.back().end_seconds;
  for (TimelineEvent event : slow.events) {
    event.iteration += 1;
    event.start_seconds += first;
    event.end_seconds += first;
    measured.events.push_back(event);
    predicted.events.push_back(event);
  }
  EXPECT_EQ(diff(predicted, measured).iterations.size(), 2u);
  const TimelineDifference found = diff(predicted, measured, {.skip = 1});
  ASSERT_EQ(found.iterations.size(), 1u);
  EXPECT_EQ(found.iterations[0].iteration, 1);
  EXPECT_THROW(diff(predicted, measured, {.skip = 2}), InputError);
}

TEST(Diff, NotesTellWhatIsOdd) {
  Timeline measured = timeline("simulated", 1, 2);
  measured.model_name = "other";
  const TimelineDifference found = diff(timeline("simulated", 1), measured);
  ASSERT_EQ(found.notes.size(), 4u);
  expect_part(found.notes[0], "'tiny'");
  expect_part(found.notes[1], "the measured one a simulated one");
  expect_part(found.notes[3], "1 iterations that only one timeline has");
}

}  // namespace
}  // namespace hydraulis
