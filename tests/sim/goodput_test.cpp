#include "sim/goodput.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace hydraulis {
namespace {

/// One node, iterations of 10 s and 1,000 tokens, a checkpoint of 20 s behind every 100 s.
TrainingJob steady_job() {
  TrainingJob job;
  job.nodes = 1;
  job.iterations = {{{10, 1000}}};
  job.checkpoints = true;
  job.interval_seconds = 100;
  job.write_seconds = 20;
  job.horizon_seconds = 12'000;
  return job;
}

/// The same, failing once, when the node is 1,000 s old (a Weibull law this steep is a constant).
TrainingJob failing_job() {
  TrainingJob job = steady_job();
  job.fails = true;
  job.failures.node_mtbf_seconds = 1000;
  job.failures.weibull_shape = 1e9;
  job.failures.detection_seconds = 30;
  job.failures.restart_seconds = 50;
  job.read_seconds = 20;
  job.horizon_seconds = 1500;
  return job;
}

constexpr double kSoon = 1e-3;  ///< the failure is that exact

TEST(Goodput, WithoutFailuresOnlyCheckpointsCostTime) {
  for (const std::uint64_t iterations : {0, 10}) {
    TrainingJob job = steady_job();
    job.interval_iterations = iterations;
    const JobRun run = run_job(job, 0);
    EXPECT_DOUBLE_EQ(run.goodput, 1 / (1 + 20.0 / 100));
    EXPECT_EQ(run.time.useful, 10'000);
    EXPECT_EQ(run.time.checkpoint, 2'000);
    EXPECT_EQ(run.time.whole(), 12'000);
    EXPECT_EQ(run.checkpoints, 99);  // the hundredth ends with the time
    EXPECT_EQ(run.tokens, 1e6);
  }
  TrainingJob none = steady_job();
  none.checkpoints = false;
  EXPECT_DOUBLE_EQ(run_job(none, 0).goodput, 1);
}

TEST(Goodput, AnIntervalIsCompletedByWholeIterations) {
  TrainingJob job = steady_job();
  job.interval_seconds = 91;  // ten iterations too
  EXPECT_DOUBLE_EQ(run_job(job, 0).goodput, 1 / 1.2);
  job.interval_seconds = 3;  // shorter than one
  EXPECT_DOUBLE_EQ(run_job(job, 0).goodput, 1 / 3.0);
}

TEST(Goodput, AsynchronousCheckpointsStopForTheSnapshotUnlessTheLastIsStillWritten) {
  TrainingJob job = steady_job();
  job.asynchronous = true;
  job.snapshot_seconds = 4;
  job.write_seconds = 60;
  job.horizon_seconds = 104 * 100;
  EXPECT_DOUBLE_EQ(run_job(job, 0).goodput, 100.0 / 104);
  // Written for 150 s: a cycle takes snapshot and writing, the first one the interval before.
  job.write_seconds = 150;
  job.horizon_seconds = 100 + 154 * 100;
  const JobRun run = run_job(job, 0);
  EXPECT_DOUBLE_EQ(run.time.useful, 100 * 101);
  EXPECT_DOUBLE_EQ(run.time.checkpoint, 54 * 100);
}

TEST(Goodput, ASingleFailureSolvedByHand) {
  // Eight cycles of 120 s end at 960 s; the 40 s behind them are lost at 1,000 s. With a spare:
  // 30 + 50 + 20 s later, at 1,100 s, three cycles follow, and 40 s of the next.
  TrainingJob job = failing_job();
  job.recovery.spare_nodes = 1;
  job.recovery.repair_seconds = 1e6;
  const JobRun spare = run_job(job, 0);
  EXPECT_EQ(spare.failures, 1);
  EXPECT_NEAR(spare.time.useful, 800 + 300 + 40, kSoon);
  EXPECT_NEAR(spare.time.checkpoint, 8 * 20 + 3 * 20, kSoon);
  EXPECT_NEAR(spare.time.lost, 40, kSoon);
  EXPECT_NEAR(spare.time.recovery, 100, kSoon);
  EXPECT_EQ(spare.time.waiting, 0);
  EXPECT_NEAR(spare.tokens, 1140 * 100, 1);
  EXPECT_NEAR(spare.goodput, 1140.0 / 1500, 1e-6);

  // Without: repaired at 1,200 s after 170 s of waiting, back at 1,270 s; a cycle until 1,390 s,
  // 100 s of training, and 10 s of the next checkpoint.
  job.recovery.spare_nodes = 0;
  job.recovery.repair_seconds = 200;
  const JobRun waits = run_job(job, 0);
  EXPECT_NEAR(waits.time.useful, 800 + 100 + 100, kSoon);
  EXPECT_NEAR(waits.time.checkpoint, 8 * 20 + 20 + 10, kSoon);
  EXPECT_NEAR(waits.time.lost, 40, kSoon);
  EXPECT_NEAR(waits.time.recovery, 100, kSoon);
  EXPECT_NEAR(waits.time.waiting, 170, kSoon);

  // A node that stays usable needs neither.
  job.failures.transient_share = 1;
  EXPECT_NEAR(run_job(job, 0).time.useful, 1140, kSoon);
}

TEST(Goodput, AFailureWhileACheckpointIsWrittenLosesWhatItWasToSave) {
  // Asynchronous, written for 60 s behind a snapshot of 5 s: the tenth interval's snapshot ends at
  // 9 · 105 + 105 = 1,050 s; a failure at 1,000 s finds the ninth (from 945 s) just being written.
  TrainingJob job = failing_job();
  job.asynchronous = true;
  job.snapshot_seconds = 5;
  job.write_seconds = 60;
  job.recovery.spare_nodes = 1;
  job.recovery.repair_seconds = 1e6;
  job.horizon_seconds = 1100;
  const JobRun run = run_job(job, 0);
  EXPECT_NEAR(run.time.useful, 800, kSoon);
  EXPECT_NEAR(run.time.lost, 100 + 55, kSoon);
  EXPECT_NEAR(run.time.checkpoint, 45, kSoon);
  EXPECT_EQ(run.checkpoints, 8);
}

/// Two nodes, of which exactly one fails within 10,000 s, and one iteration on the other takes 16 s
/// instead of 10; checkpoints behind every iteration cost nothing.
std::pair<TrainingJob, std::uint64_t> shrinking_job() {
  TrainingJob job = failing_job();
  job.nodes = 2;
  job.iterations = {{{10, 1000}}, {{16, 1000}}};
  job.failures.node_mtbf_seconds = 10'000;
  job.failures.weibull_shape = 1;
  job.recovery.mode = RecoveryMode::shrink;
  job.recovery.repair_seconds = 1e9;
  job.interval_seconds = 0;
  job.interval_iterations = 1;
  job.write_seconds = 0;
  job.horizon_seconds = 10'000;
  for (std::uint64_t replication = 0;; ++replication) {
    const JobRun run = run_job(job, replication);
    if (run.failures == 1 && run.time.lost > 1 && run.time.degraded > 600) {
      return {job, replication};
    }
  }
}

TEST(Goodput, AShrunkJobGoesOnMoreSlowly) {
  const auto [job, replication] = shrinking_job();
  const WallTime time = run_job(job, replication).time;
  EXPECT_DOUBLE_EQ(time.recovery, 100);
  EXPECT_NEAR(time.whole(), 10'000, 1e-6);
  // From useful = (F - lost) + (10,000 - F - 100) · 10/16 follows F, when it failed.
  const double failed = (time.useful + time.lost - 9'900 * 0.625) / 0.375;
  const double iterations = (failed - time.lost) / 10;
  EXPECT_NEAR(iterations, std::round(iterations), 1e-6);
  EXPECT_NEAR(time.degraded, (9'900 - failed) * 6 / 16, 1e-6);
}

TEST(Goodput, AShrunkJobGrowsBackBehindACheckpoint) {
  auto [job, replication] = shrinking_job();
  job.recovery.repair_seconds = 500;  // 400 s after it goes on: in its 25th iteration
  const WallTime time = run_job(job, replication).time;
  EXPECT_NEAR(time.degraded, 25 * 6, 1e-6);
  EXPECT_NEAR(time.recovery, 100 + 70, 1e-6);
  EXPECT_EQ(time.waiting, 0);
}

TEST(Goodput, AJobThatMayShrinkNoFurtherWaits) {
  TrainingJob job = shrinking_job().first;
  job.iterations.pop_back();
  job.horizon_seconds = 1e6;
  const JobRun run = run_job(job, 0);
  EXPECT_GE(run.failures, 1);
  EXPECT_GT(run.time.waiting, 0);
  EXPECT_EQ(run.time.degraded, 0);
}

TEST(Goodput, ThePartsAddUpToTheWholeWhateverHappens) {
  Random random(3);
  for (int trial = 0; trial < 200; ++trial) {
    TrainingJob job;
    job.nodes = 2 + static_cast<int>(random.below(6));
    job.fails = true;
    job.checkpoints = true;
    for (int missing = 0; missing < 2; ++missing) {
      auto& samples = job.iterations.emplace_back();
      for (int i = 0; i < 20; ++i) {
        samples.push_back(
            {(5 + 10 * random.uniform()) * (1 + 0.3 * missing), 1000 * (1 + random.uniform())});
      }
    }
    job.recovery.mode = random.below(2) == 0 ? RecoveryMode::replace : RecoveryMode::shrink;
    if (job.recovery.mode == RecoveryMode::replace) job.iterations.pop_back();
    job.failures.node_mtbf_seconds = 3600 * (1 + 50 * random.uniform());
    job.failures.weibull_shape = 0.5 + random.uniform();
    job.failures.transient_share = random.uniform();
    job.failures.detection_seconds = 60 * random.uniform();
    job.failures.restart_seconds = 300 * random.uniform();
    job.recovery.spare_nodes = static_cast<int>(random.below(3));
    job.recovery.repair_seconds = 7200 * random.uniform();
    job.recovery.exponential_repair = random.below(2) == 0;
    job.interval_seconds = 1000 * random.uniform();
    job.write_seconds = 60 * random.uniform();
    job.asynchronous = random.below(2) == 0;
    job.snapshot_seconds = job.asynchronous ? 5 * random.uniform() : 0;
    job.horizon_seconds = 86400;
    const JobRun run = run_job(job, 1);
    EXPECT_NEAR(run.time.whole(), job.horizon_seconds, 1e-6 * job.horizon_seconds);
    EXPECT_GE(std::min({run.time.useful, run.time.checkpoint, run.time.lost, run.time.recovery,
                        run.time.degraded, run.time.waiting}),
              -1e-6);
    // What is useful is what the kept tokens take, up to the drawn iterations' variation.
    EXPECT_NEAR(run.goodput, run.time.useful / job.horizon_seconds, 0.03);
  }
}

TEST(Goodput, FailuresDoNotDependOnTheInterval) {
  TrainingJob job = failing_job();
  job.nodes = 8;
  job.failures.weibull_shape = 1;
  job.failures.node_mtbf_seconds = 1e5;
  job.recovery.spare_nodes = 8;
  job.horizon_seconds = 1e6;
  const JobRun one = run_job(job, 4);
  job.interval_seconds = 777;
  EXPECT_GT(one.failures, 20);
  EXPECT_EQ(run_job(job, 4).failures, one.failures);
  EXPECT_NE(run_job(job, 5).failures, one.failures);
}

TEST(Goodput, JobsThatCannotBeAreRefused) {
  const auto refused = [](auto&& change) {
    TrainingJob job = failing_job();
    change(job);
    EXPECT_THROW(run_job(job, 0), InputError);
  };
  refused([](TrainingJob& job) { job.nodes = 0; });
  refused([](TrainingJob& job) { job.iterations.clear(); });
  refused([](TrainingJob& job) { job.iterations = {{}}; });
  refused([](TrainingJob& job) { job.iterations = {{{0, 1}}}; });
  refused([](TrainingJob& job) { job.iterations = {{{1, 1}}, {{1, 1}}}; });
  refused([](TrainingJob& job) { job.horizon_seconds = 0; });
  refused([](TrainingJob& job) { job.checkpoints = false; });
  refused([](TrainingJob& job) { job.interval_seconds = 0; });
}

}  // namespace
}  // namespace hydraulis
