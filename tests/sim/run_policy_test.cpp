#include "sim/run_policy.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "costmodel/build_cost_model.h"

namespace hydraulis {
namespace {

LengthTrace mixed_trace() {
  LengthTrace trace;
  trace.source = "mixed";
  for (std::uint32_t i = 0; i < 500; ++i) trace.lengths.push_back(64 + (i * 7919) % 3000);
  for (std::uint32_t i = 0; i < 20; ++i) trace.lengths.push_back(6000 + (i * 1543) % 14000);
  return trace;
}

/// Two strategies for 13B on 16 A800.
PolicySetup setup(std::span<const Batch> tuning) {
  const ModelSpec model = load_model("llama-13b");
  const ClusterSpec cluster = load_cluster("a800-16");
  PolicySetup result;
  result.model = make_cost_model(model, cluster, default_profile(model, cluster),
                                 MemoryModel::published, {2, 8, 1});
  result.set.strategies = parse_strategies("2x(1,8,1); (1,8,1)+2x(1,4,1)", "test");
  result.set.optimizer = {2, 8, 1};
  result.context = 16384;
  result.batches = tuning;
  return result;
}

BatchRun small_run(const LengthTrace& trace, std::uint64_t iterations) {
  BatchRun run{trace, {}, iterations};
  run.sampling.tokens_per_batch = 60000;
  run.sampling.context = 16384;
  run.sampling.over_context = OverContext::truncate;
  return run;
}

TEST(RunPolicy, SwitchesCostWhatTheSetupSays) {
  const LengthTrace trace = mixed_trace();
  const BatchRun run = small_run(trace, 40);
  const BatchSurvey surveyed = survey(run);
  PolicySetup made = setup(surveyed.tuning);
  // Two devices hold 9,472 tokens: about every other batch has a longer sequence.
  made.set.strategies = parse_strategies("2x(1,8,1); 8x(1,2,1); (1,8,1)+4x(1,2,1)", "test");
  const SimulatedRun free = run_policy("hydraulis", made, run);
  made.switch_seconds = 2;
  const SimulatedRun charged = run_policy("hydraulis", made, run);
  int switches = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    const IterationResult& before = free.result.iterations[i];
    const IterationResult& after = charged.result.iterations[i];
    const bool switched = i > 0 && before.strategy != free.result.iterations[i - 1].strategy;
    switches += switched ? 1 : 0;
    EXPECT_DOUBLE_EQ(after.time_seconds, before.time_seconds + (switched ? 2 : 0));
    EXPECT_NEAR(after.losses.whole(), 16 * after.time_seconds, 1e-6);
    EXPECT_NEAR(after.mfu * after.time_seconds, before.mfu * before.time_seconds, 1e-9);
  }
  EXPECT_GT(switches, 0);
  EXPECT_NEAR(charged.result.summary.mean_seconds - free.result.summary.mean_seconds,
              2.0 * switches / 40, 1e-9);
  const SimulatedRun steady = run_policy("hydraulis-steady", made, run);
  EXPECT_LE(steady.result.summary.mean_seconds, charged.result.summary.mean_seconds);
}

// More iterations than are planned at once, against planning everything first.
TEST(RunPolicy, StreamingGivesWhatPlanningTheWholeRunFirstGives) {
  const LengthTrace trace = mixed_trace();
  const BatchRun run = small_run(trace, 100);
  std::vector<Batch> all;
  Sampler sampler(trace, run.sampling);
  for (int i = 0; i < 100; ++i) all.push_back(sampler.next());
  const BatchSurvey surveyed = survey(run);
  EXPECT_EQ(surveyed.over_context.sequences, sampler.position().counts.sequences);
  EXPECT_GT(surveyed.over_context.sequences, 0u);
  for (const char* name : {"static-pack", "hydraulis-static", "hydraulis", "hydraulis-steady",
                           "hydraulis-ahead", "hotspa", "wlb-llm", "longalign"}) {
    const auto planner = make_policy(name, setup(all));
    std::vector<BatchPlan> plans;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t seen = std::min(planner->lookahead() + 1, all.size() - i);
      plans.push_back(planner->plan(std::span<const Batch>(all).subspan(i, seen)));
    }
    const RunResult whole = simulate(plans, planner->cost_model());
    for (const int threads : {1, 3}) {
      PolicyRunOptions options;
      options.iteration.threads = threads;
      std::size_t done = 0;
      options.iteration.on_progress = [&done](std::size_t now) { EXPECT_EQ(now, ++done); };
      options.keep_plan = 77;
      const SimulatedRun streamed = run_policy(name, setup(surveyed.tuning), run, options);
      EXPECT_EQ(done, 100u);
      EXPECT_EQ(streamed.remark.find(planner->remark()), 0u);
      EXPECT_EQ(streamed.remark != planner->remark(), planner->reorders_data());
      ASSERT_EQ(streamed.result.iterations.size(), 100u);
      for (std::size_t i = 0; i < 100; ++i) {
        EXPECT_EQ(streamed.result.iterations[i].time_seconds, whole.iterations[i].time_seconds);
        EXPECT_EQ(streamed.result.iterations[i].strategy, whole.iterations[i].strategy);
        EXPECT_EQ(streamed.result.iterations[i].tokens, whole.iterations[i].tokens);
      }
      EXPECT_EQ(streamed.result.summary.mean_seconds, whole.summary.mean_seconds);
      EXPECT_EQ(streamed.result.summary.p95_seconds, whole.summary.p95_seconds);
      EXPECT_EQ(streamed.result.summary.mfu, whole.summary.mfu);
      EXPECT_EQ(streamed.result.summary.events, whole.summary.events);
      ASSERT_TRUE(streamed.kept_plan);
      EXPECT_EQ(streamed.kept_plan->makespan_seconds, plans[77].makespan_seconds);
    }
  }
}

TEST(RunPolicy, TheSurveySpreadsItsBatchesEvenlyAndCountsThoseOverTheBudget) {
  const LengthTrace trace = mixed_trace();
  BatchRun run = small_run(trace, 40);
  std::vector<Batch> all;
  Sampler sampler(trace, run.sampling);
  for (int i = 0; i < 40; ++i) all.push_back(sampler.next());
  const BatchSurvey surveyed = survey(run);
  ASSERT_EQ(surveyed.tuning.size(), 16u);
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(surveyed.tuning[i].ids, all[i * 40 / 16].ids) << i;
  EXPECT_EQ(surveyed.over_budget, 0u);
  run.iterations = 3;
  EXPECT_EQ(survey(run).tuning.size(), 3u);
  run.sampling.tokens_per_batch = 63;  // every sequence has more
  EXPECT_EQ(survey(run).over_budget, 3u);
}

TEST(RunPolicy, WithoutIterationsKeptTheSummaryIsTheSame) {
  const LengthTrace trace = mixed_trace();
  const BatchRun run = small_run(trace, 40);
  const BatchSurvey surveyed = survey(run);
  PolicyRunOptions options;
  const auto with = run_policy("hydraulis", setup(surveyed.tuning), run, options);
  options.keep_iterations = false;
  const auto without = run_policy("hydraulis", setup(surveyed.tuning), run, options);
  EXPECT_TRUE(without.result.iterations.empty());
  EXPECT_EQ(with.result.summary.mean_seconds, without.result.summary.mean_seconds);
  EXPECT_EQ(with.result.summary.p95_seconds, without.result.summary.p95_seconds);
}

TEST(RunPolicy, AnUnknownPolicyIsRefused) {
  const LengthTrace trace = mixed_trace();
  EXPECT_THROW(run_policy("none", setup({}), small_run(trace, 1)), InputError);
}

}  // namespace
}  // namespace hydraulis
