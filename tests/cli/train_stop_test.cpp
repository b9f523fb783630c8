// Signals to a job, and ranks that do not answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "tests/cli/train_job.h"

namespace hydraulis {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

/// A run of a million steps that has done a few.
struct LongRun {
  explicit LongRun(int timeout_seconds) {
    folder.plan(2, "2x(1,1,1)");
    folder.run_file("run.json", {{"steps", 1'000'000}, {"timeout_seconds", timeout_seconds}});
    job.emplace(folder, 2, std::vector<std::string>{run()});
    EXPECT_TRUE(job->until([&] { return folder.losses("out").size() > 3; }));
    ranks = job->ranks();
    EXPECT_EQ(ranks.size(), 2u);
    if (ranks.size() != 2) ranks.assign(2, job->mpirun());
  }
  std::string run() const { return (folder.folder() / "run.json").string(); }
  void expect_none_left() const {
    for (int i = 0; i < 1000 && processes_with(run()) > 0; ++i) ::usleep(10'000);
    EXPECT_EQ(processes_with(run()), 0);
  }

  TrainingFolder folder;
  std::optional<TrainingJob> job;
  std::vector<pid_t> ranks;
};

/// The run ended after a whole step, with a checkpoint of it, and said so if it could.
void expect_clean_stop(const LongRun& run, const Outcome& stopped, bool told = true) {
  const auto rows = run.folder.losses("out");
  ASSERT_FALSE(rows.empty());
  const std::string step = rows.back()[0];
  EXPECT_EQ(occurrences(stopped.err, "error: "), 0) << stopped.err;
  if (told) {
    EXPECT_THAT(stopped.err, HasSubstr("asked to stop: stopping after step " + step));
    EXPECT_THAT(stopped.out, HasSubstr(step + " steps done, stopped by a signal"));
  }
  const Json shown = run.folder.json({"checkpoint", "show", "out/checkpoints", "--verify"});
  EXPECT_EQ(shown.at("step").get<int>(), std::stoi(step));
}

TEST(TrainStop, ASignalToAnyRankIsAgreedOnAtTheEndOfTheStep) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    for (const std::size_t rank : {0u, 1u}) {
      LongRun run(20);
      ::kill(run.ranks[rank], signal);
      const Outcome stopped = run.job->wait();
      EXPECT_EQ(stopped.code, 0) << stopped.err;
      expect_clean_stop(run, stopped);
    }
  }
}

TEST(TrainStop, ASignalToMpirunReachesTheRanks) {
  const KillAfter patient("3");
  for (const int signal : {SIGTERM, SIGUSR1}) {
    LongRun run(20);
    ::kill(run.job->mpirun(), signal);
    const Outcome stopped = run.job->wait();
    // SIGUSR1 is only passed on. At SIGTERM mpirun stops listening to its ranks and fails itself.
    EXPECT_TRUE(stopped.code == 0 || signal == SIGTERM) << stopped.err;
    expect_clean_stop(run, stopped, signal == SIGUSR1);
    run.expect_none_left();
  }
}

TEST(TrainStop, SurvivorsOfADeadRankEndThoughAskedToStop) {
  LongRun run(20);
  ::kill(run.ranks[1], SIGKILL);
  ::kill(run.ranks[0], SIGTERM);
  const double killed = run.job->seconds();
  const Outcome ended = run.job->wait();
  EXPECT_NE(ended.code, 0);
  EXPECT_LT(run.job->seconds() - killed, 15);
  EXPECT_THAT(ended.err, HasSubstr("rank 1"));
  EXPECT_THAT(ended.err, HasSubstr("signal 9"));
  run.expect_none_left();
}

TEST(TrainStop, ARankThatDoesNotAnswerIsGivenUpNamingTheStepThoughAskedToStop) {
  LongRun run(2);
  ::kill(run.ranks[1], SIGSTOP);
  ::kill(run.ranks[0], SIGTERM);
  const double stopped = run.job->seconds();
  const Outcome ended = run.job->wait();
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_LT(run.job->seconds() - stopped, 20);
  EXPECT_THAT(ended.err, ContainsRegex("hydraulis: error: step [0-9]+, rank 0, .*gave up after 2.0 "
                                       "s; .*rank 1"));
  run.expect_none_left();
  // What was saved before is whole: none here, so the run begins anew.
  run.folder.run_file("run.json", {});
  run.folder.trained(2, {"run.json", "--resume", "auto"});
}

}  // namespace
}  // namespace hydraulis
