// Runs that stop, die and go on: the same numbers and the same sequences as one that never stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "base/random.h"
#include "tests/cli/train_job.h"

namespace hydraulis {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Bytes of every file of a checkpoint but its manifest, by name.
std::map<std::string, std::string> tensors_of(const fs::path& checkpoint) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    const std::string name = entry.path().filename().string();
    if (name != "manifest.json") files[name] = read_text_file(entry.path());
  }
  return files;
}

TEST(TrainResume, TenStepsAreFiveAndFiveMoreBitForBit) {
  const TrainingFolder folder;
  folder.plan(2, "2x(1,1,1); (1,2,1); (1,1,2)");
  const Json ten = {{"schedule", {{"warmup_steps", 3}, {"decay_steps", 10}}}};
  folder.run_file("straight.json", ten);
  folder.trained(2, {"straight.json"});
  Json five = ten;
  five["output"] = "halves";
  folder.run_file("ten.json", five);
  five["steps"] = 5;
  folder.run_file("five.json", five);
  folder.trained(2, {"five.json"});
  const Outcome resumed = folder.trained(2, {"ten.json", "--resume", "auto"});
  EXPECT_THAT(resumed.err, HasSubstr("resuming after step 5"));

  EXPECT_EQ(folder.losses("out").size(), 10u);
  EXPECT_EQ(folder.losses("out"), folder.losses("halves"));
  EXPECT_EQ(folder.text("out/sequences.csv"), folder.text("halves/sequences.csv"));
  const auto whole = tensors_of(folder.folder() / "out/checkpoints/step-00000010");
  EXPECT_EQ(whole.size(), 2u);
  EXPECT_EQ(whole, tensors_of(folder.folder() / "halves/checkpoints/step-00000010"));

  // Asked for again there is nothing to do, and nothing is changed.
  const Outcome again = folder.trained(2, {"ten.json", "--resume", "auto"});
  EXPECT_THAT(again.err, HasSubstr("nothing to do: "));
  EXPECT_EQ(folder.losses("out"), folder.losses("halves"));
}

/// Parameters of a checkpoint as 32-bit floats.
std::vector<float> parameters(const TrainingFolder& folder, const std::string& output) {
  folder.json({"checkpoint", "export-hf", output + "/checkpoints", "-o", output + "-exported",
               "--type", "fp32"});
  const std::string bytes = folder.text(output + "-exported/model.safetensors");
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  std::vector<float> values((bytes.size() - 8 - header) / sizeof(float));
  std::memcpy(values.data(), bytes.data() + 8 + header, values.size() * sizeof(float));
  return values;
}

TEST(TrainResume, OtherRanksAndStrategiesGoOnWithinRounding) {
  const TrainingFolder folder;
  folder.plan(1, "(1,1,1)");
  folder.plan(2, "(1,2,1); (1,1,2)");
  folder.plan(4, "2x(1,1,1)+(2,1,1); (1,2,2)");
  const auto file = [&](const std::string& output, int ranks, int steps) {
    folder.run_file("run.json", {{"plan", "plan-" + std::to_string(ranks) + ".json"},
                                 {"output", output},
                                 {"steps", steps},
                                 {"precision", "f64"},
                                 {"schedule", {{"decay_steps", 12}}}});
  };
  file("straight", 1, 12);
  folder.trained(1, {"run.json"});
  file("moved", 1, 4);
  folder.trained(1, {"run.json"});
  file("moved", 2, 8);
  folder.trained(2, {"run.json", "--resume", "auto"});
  file("moved", 4, 12);
  folder.trained(4, {"run.json", "--resume", "auto"});

  const auto straight = folder.losses("straight");
  const auto moved = folder.losses("moved");
  ASSERT_EQ(straight.size(), 12u);
  ASSERT_EQ(moved.size(), 12u);
  for (std::size_t i = 0; i < straight.size(); ++i) {
    EXPECT_EQ(moved[i][0], straight[i][0]);
    EXPECT_EQ(moved[i][3], straight[i][3]) << "learning rate";
    for (const int column : {1, 2}) {
      const double expected = std::stod(straight[i][column]);
      EXPECT_NEAR(std::stod(moved[i][column]), expected, 1e-9 * expected) << "step " << i + 1;
    }
  }
  EXPECT_EQ(folder.text("straight/sequences.csv"), folder.text("moved/sequences.csv"));
  const std::vector<float> expected = parameters(folder, "straight");
  const std::vector<float> got = parameters(folder, "moved");
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-6) << i;
}

constexpr int kKills = 22;
constexpr int kEverySteps = 2;

std::int64_t last_step(const TrainingFolder& folder) {
  const auto rows = folder.losses("out");
  return rows.empty() ? 0 : std::stoll(rows.back()[0]);
}

bool saving(const TrainingFolder& folder) {
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(folder.folder() / "out/checkpoints", ec)) {
    if (entry.path().extension() == ".tmp") return true;
  }
  return false;
}

/// The step that a run said it goes on from; 0 if it began anew.
std::int64_t resumed_after(const Outcome& outcome) {
  const std::string words = "resuming after step ";
  const std::size_t at = outcome.err.find(words);
  return at == std::string::npos ? 0 : std::stoll(outcome.err.substr(at + words.size()));
}

TEST(TrainResume, KilledAtAnyMomentARunLosesNoMoreThanTheStepsSinceItsCheckpoint) {
  const TrainingFolder folder;
  const KillAfter at_once("0");
  folder.plan(2, "2x(1,1,1); (1,2,1)");
  const Json settings = {{"steps", 1'000'000},
                         {"schedule", {{"decay", "constant"}}},
                         {"checkpoint", {{"every_steps", kEverySteps}, {"keep", 2}}}};
  folder.run_file("run.json", settings);
  const std::string run = folder.folder() / "run.json";
  Random random(std::random_device{}());
  std::int64_t reached = 0;  // the last step of which a row stands in the log
  int during_saves = 0;
  const auto check = [&](const Outcome& outcome) {
    if (outcome.err.find("strategies in the set") == std::string::npos) return;  // never began
    // Row k is written before k is saved.
    const std::int64_t saved = reached > 0 ? (reached - 1) / kEverySteps * kEverySteps : 0;
    EXPECT_GE(resumed_after(outcome), saved) << outcome.err;
    EXPECT_LE(resumed_after(outcome), reached) << outcome.err;
    during_saves += occurrences(outcome.err, "removed unfinished");
  };
  for (int kill = 0; kill < kKills; ++kill) {
    TrainingJob job(folder, 2, {run, "--resume", "auto"});
    const auto pause = std::chrono::microseconds(static_cast<int>(random.next() % 60'000));
    if (kill % 11 == 10) {
      std::this_thread::sleep_for(5 * pause);  // while it starts
      job.until([&] { return job.ranks().size() == 2; });
    } else if (kill % 2 == 0) {
      job.until([&] { return last_step(folder) > reached; });
      std::this_thread::sleep_for(pause);
    } else {
      job.until([&] { return last_step(folder) > reached; });
      job.until([&] { return saving(folder); });
      std::this_thread::sleep_for(pause / 30);
    }
    const auto ranks = job.ranks();
    const pid_t victim =
        kill % 5 == 4 || ranks.empty() ? job.mpirun() : ranks[random.next() % ranks.size()];
    ::kill(victim, SIGKILL);
    const Outcome killed = job.wait();
    EXPECT_NE(killed.code, 0);
    for (int i = 0; i < 1000 && processes_with(run) > 0; ++i) ::usleep(10'000);
    EXPECT_EQ(processes_with(run), 0) << "left behind";
    check(killed);
    reached = last_step(folder);
  }
  EXPECT_GT(during_saves, 0);
  EXPECT_GT(reached, kKills);

  Json last = settings;
  last["steps"] = reached + 5;
  folder.run_file("run.json", last);
  check(folder.trained(2, {run, "--resume", "auto"}));
  last["output"] = "straight";
  last["checkpoint"]["every_steps"] = 0;
  folder.run_file("straight.json", last);
  folder.trained(2, {"straight.json"});
  EXPECT_EQ(folder.losses("out"), folder.losses("straight"));
  EXPECT_EQ(folder.text("out/sequences.csv"), folder.text("straight/sequences.csv"));
  std::set<std::string> ids;
  for (const auto& row : folder.rows("out/sequences.csv", 2)) {
    EXPECT_TRUE(ids.insert(row[1]).second) << "sequence " << row[1] << " twice";
  }
  for (std::size_t id = 0; id < ids.size() / 60 * 60; ++id) {
    EXPECT_TRUE(ids.contains(std::to_string(id))) << "sequence " << id << " never";
  }
}

TEST(TrainResume, DamagedCheckpointsArePassedOverAndTold) {
  const TrainingFolder folder;
  folder.plan(2, "2x(1,1,1)");
  folder.run_file("run.json", {{"steps", 6}, {"checkpoint", {{"every_steps", 2}, {"keep", 2}}}});
  folder.trained(2, {"run.json"});
  const auto damage = [&](const std::string& step) {
    const auto part = folder.folder() / ("out/checkpoints/step-0000000" + step) /
                      "part-00001-of-00002.safetensors";
    std::fstream file(part, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('\x55');
  };
  const auto before = folder.losses("out");
  damage("6");
  const Outcome resumed = folder.trained(2, {"run.json", "--resume", "auto"});
  EXPECT_THAT(resumed.err, HasSubstr("checkpoint of step 6 is damaged and left out: "));
  EXPECT_THAT(resumed.err, HasSubstr("resuming after step 4"));
  EXPECT_EQ(folder.losses("out"), before);
  damage("4");
  damage("6");
  expect_one_error(folder.train(2, {"run.json", "--resume", "auto"}), 2,
                   "none of 2 checkpoints is whole");
}

TEST(TrainResume, AFolderBelongsToOneRunAtATime) {
  const TrainingFolder folder;
  folder.plan(1, "(1,1,1)");
  folder.plan(2, "2x(1,1,1)");
  folder.run_file("long.json", {{"steps", 1'000'000}});
  TrainingJob first(folder, 2, {"long.json"});
  ASSERT_TRUE(first.until([&] { return last_step(folder) > 0; }));
  folder.run_file("run.json", {{"plan", "plan-1.json"}});
  for (const char* resume : {"auto", "never"}) {
    expect_refused(folder.run({"train", "run.json", "--resume", resume}), 2,
                   "out: another run is writing there");
  }
  ::kill(first.ranks().at(0), SIGTERM);
  EXPECT_EQ(first.wait().code, 0);
}

TEST(TrainResume, ASecondRunIntoAFolderIsRefused) {
  const TrainingFolder folder;
  folder.plan(1, "(1,1,1)");
  folder.plan(2, "2x(1,1,1)");
  folder.run_file("run.json", {});
  folder.trained(2, {"run.json"});
  const std::string log = folder.text("out/log.csv");
  expect_one_error(folder.train(2, {"run.json"}), 2, "--resume auto, or name another output");
  EXPECT_EQ(folder.text("out/log.csv"), log);
  // Nor can a run go on with other data or another model.
  folder.write_texts("texts.jsonl", 61);
  expect_one_error(folder.train(2, {"run.json", "--resume", "auto"}), 2,
                   "documents' is 60 in the checkpoint, but 61 in this run");
  folder.write_texts("texts.jsonl", 60);
  Json other = TrainingFolder::config();
  other["intermediate_size"] = 52;
  folder.folder().write("config.json", other.dump());
  folder.plan(2, "2x(1,1,1)");
  expect_one_error(folder.train(2, {"run.json", "--resume", "auto"}), 2,
                   "which is not the plan's model");
  EXPECT_EQ(folder.text("out/log.csv"), log);
}

}  // namespace
}  // namespace hydraulis
