// `sweep` and `report`: exit codes, resuming, the files they leave.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/cli/command.h"
#include "tests/cli/train_job.h"

namespace hydraulis {
namespace {

class SweepCommand : public ::testing::Test {
 protected:
  void write(const std::string& grid) {
    command_.folder().write("sweep.json",
                            R"json({"model": "llama-13b", "cluster": "a800-16",
            "trace": {"preset": "commoncrawl", "documents": 500},
            "strategies": "2x(1,8,1)", "context": 16384, "over_context": "truncate",
            "tokens_per_batch": 60000, "iterations": 2, "grid": )json" +
                                grid + "}");
  }
  bool exists(const std::string& name) const {
    return std::filesystem::exists(command_.folder() / name);
  }
  Command command_;
};

TEST_F(SweepCommand, SharesAreGatheredAndTheirFolderGoes) {
  write(R"json({"seed": [1, 2, 3]})json");
  const Outcome first = command_.run({"sweep", "sweep.json", "-o", "r.h5", "--shard", "0/2"});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_FALSE(exists("r.h5"));
  expect_refused(command_.run({"sweep", "sweep.json", "-o", "r.h5", "--shard", "1/2", "--fresh"}),
                 2, "--fresh");
  EXPECT_TRUE(exists("r.h5.parts/point-000002.h5"));
  EXPECT_FALSE(exists("r.h5.parts/point-000001.h5"));
  const Json whole = command_.json({"sweep", "sweep.json", "-o", "r.h5"});
  EXPECT_EQ(whole["computed"], 1);
  EXPECT_EQ(whole["resumed"], 2);
  ASSERT_EQ(whole["points"].size(), 3u);
  EXPECT_EQ(whole["points"][2]["seed"], 3);
  EXPECT_TRUE(exists("r.h5"));
  EXPECT_FALSE(exists("r.h5.parts"));
  const Outcome page = command_.run({"report", "r.h5", "-o", "r.html", "--title", "three seeds"});
  EXPECT_EQ(page.code, 0) << page.err;
  EXPECT_TRUE(exists("r.html"));
}

TEST_F(SweepCommand, AWhatIfThatChangesNothingIsReported) {
  write(R"json({"bandwidth_scale": [1, 0.5], "no_communication": [true, false]})json");
  const Json both = command_.json({"sweep", "sweep.json", "-o", "r.h5"});
  EXPECT_EQ(both["axes_without_effect"], Json::array());
  write(R"json({"bandwidth_scale": [1, 0.5], "no_communication": [true]})json");
  const Json neither = command_.json({"sweep", "sweep.json", "-o", "r.h5"});
  EXPECT_EQ(neither["axes_without_effect"], Json::array({"bandwidth_scale"}));
  const Outcome one =
      command_.run({"simulate", "--trace", "web-gpt2", "--over-context", "truncate", "--iterations",
                    "1", "--no-communication", "--bandwidth-scale", "2"});
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_NE(one.out.find("--bandwidth-scale changes nothing"), std::string::npos) << one.out;
}

TEST_F(SweepCommand, AJobOfSeveralProcessesSharesThePoints) {
  write(R"json({"seed": [1, 2, 3]})json");
  EXPECT_EQ(command_.run({"sweep", "sweep.json", "-o", "alone.h5", "--json"}).code, 0);
  TrainingJob job(command_, 2, {"sweep", "sweep.json", "-o", "r.h5", "--json"},
                  {HYDRAULIS_COMMAND});
  const Outcome outcome = job.wait();
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json told = Json::parse(outcome.out);
  EXPECT_EQ(told["computed"], 3);
  EXPECT_EQ(told["resumed"], 0);
  EXPECT_EQ(told["points"].size(), 3u);
  EXPECT_FALSE(exists("r.h5.parts"));
  EXPECT_EQ(read_text_file(command_.folder() / "r.h5"),
            read_text_file(command_.folder() / "alone.h5"));
}

TEST_F(SweepCommand, AJobRefusesWithOneLine) {
  write(R"json({"nodes": [1]})json");
  TrainingJob job(command_, 2, {"sweep", "sweep.json", "-o", "r.h5"}, {HYDRAULIS_COMMAND});
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.find("hydraulis: error: "), outcome.err.rfind("hydraulis: error: "))
      << outcome.err;
}

TEST_F(SweepCommand, ASweepOfWhichNothingFitsSaysWhy) {
  write(R"json({"strategies": ["2x(1,4,1)"]})json");
  const Outcome none = command_.run({"sweep", "sweep.json", "-o", "r.h5"});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("devices"), std::string::npos) << none.err;
  write(R"json({"context": [1000000]})json");
  const Outcome large = command_.run({"sweep", "sweep.json", "-o", "r.h5"});
  EXPECT_EQ(large.code, 3) << large.err;
  EXPECT_NE(large.err.find("memory"), std::string::npos) << large.err;
}

TEST_F(SweepCommand, AnOutputThatCannotBeWrittenIsRefusedAtOnce) {
  write(R"json({"seed": [1]})json");
  expect_refused(command_.run({"sweep", "sweep.json", "-o", "."}), 2, "is a folder");
  expect_refused(command_.run({"sweep", "sweep.json", "-o", "none/r.h5"}), 2, "does not exist");
  EXPECT_FALSE(exists("none"));
  EXPECT_FALSE(exists("..parts"));
}

TEST_F(SweepCommand, WrongInputIsRefusedByName) {
  write(R"json({"nodes": [1]})json");
  const Outcome axis = command_.run({"sweep", "sweep.json", "-o", "r.h5"});
  EXPECT_EQ(axis.code, 2);
  EXPECT_NE(axis.err.find("grid.nodes"), std::string::npos) << axis.err;
  write(R"json({"seed": [1]})json");
  for (const char* shard : {"2/2", "1", "a/2", "0/0"}) {
    EXPECT_EQ(command_.run({"sweep", "sweep.json", "-o", "r.h5", "--shard", shard}).code, 2)
        << shard;
  }
  command_.folder().write("other.h5", "no results");
  const Outcome other = command_.run({"report", "other.h5", "-o", "r.html"});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("other.h5"), std::string::npos) << other.err;
  EXPECT_FALSE(exists("r.html"));
}

}  // namespace
}  // namespace hydraulis
