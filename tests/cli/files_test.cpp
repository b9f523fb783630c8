#include <gtest/gtest.h>

#include "tests/cli/command.h"

namespace hydraulis {
namespace {

/// A plan over one strategy and a small trace, in a folder of their own.
class FilesCommand : public ::testing::Test {
 protected:
  FilesCommand() {
    command_.folder().write("lengths.txt", "100\n200\n300\n61\n0\n");
    expect_done({"plan", "--strategies", "4x(1,16,1)", "-o", "plan.json"});
  }
  Outcome expect_done(const std::vector<std::string>& arguments) const {
    Outcome outcome = command_.run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  }
  void expect_error(const std::vector<std::string>& arguments, int code,
                    const std::string& part) const {
    const Outcome outcome = command_.run(arguments);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }
  std::string plan_text() const { return read_text_file(command_.folder() / "plan.json"); }
  Command command_;
};

TEST_F(FilesCommand, AnOutputNeverReplacesAnInputOrAnotherOutput) {
  const std::string before = plan_text();
  expect_error({"simulate", "--plan", "plan.json", "--trace", "lengths.txt", "-o", "./plan.json"},
               2, "also the file of --plan");
  expect_error({"simulate", "--plan", "plan.json", "--trace", "lengths.txt", "-o", "x.json",
                "--timeline", "x.json"},
               2, "also the file of --timeline");
  expect_error({"assign", "--plan", "plan.json", "--lengths", "lengths.txt", "-o", "lengths.txt"},
               2, "also the file of --lengths");
  expect_error({"compare", "--plan", "plan.json", "--trace", "lengths.txt", "-o", "plan.json"}, 2,
               "also the file of --plan");
  expect_error({"plan", "--trace", "lengths.txt", "-o", "lengths.txt"}, 2,
               "also the file of --trace");
  EXPECT_EQ(plan_text(), before);
  EXPECT_FALSE(std::filesystem::exists(command_.folder() / "x.json"));
}

TEST_F(FilesCommand, TimelinesHaveAKnownEnding) {
  expect_error({"simulate", "--plan", "plan.json", "--trace", "lengths.txt", "--timeline", "t.foo"},
               2, "--timeline: t.foo");
  EXPECT_FALSE(std::filesystem::exists(command_.folder() / "t.foo"));
}

TEST_F(FilesCommand, AssignSaysWhatItLeftOut) {
  const Outcome outcome = expect_done({"assign", "--plan", "plan.json", "--lengths", "lengths.txt",
                                       "--context", "150", "--over-context", "drop"});
  EXPECT_NE(outcome.out.find("1 empty sequences left out; 2 over the context, of which 2 dropped, "
                             "500 tokens removed"),
            std::string::npos)
      << outcome.out;
}

TEST_F(FilesCommand, ACapIsNotBlamedOnMemory) {
  expect_error({"assign", "--plan", "plan.json", "--lengths", "lengths.txt", "--max-tokens", "200"},
               3, "--max-tokens 200: sequence 2 has 300 tokens, 100 more");
  expect_error({"simulate", "--plan", "plan.json", "--trace", "lengths.txt", "--policy",
                "static-pack", "--max-tokens", "3"},
               3, "--max-tokens 3");
}

TEST_F(FilesCommand, ABatchOverTheBudgetIsNoted) {
  const Outcome outcome = expect_done({"simulate", "--plan", "plan.json", "--trace", "lengths.txt",
                                       "--tokens-per-batch", "150", "--iterations", "4"});
  EXPECT_NE(outcome.out.find("2 of 4 batches hold one sequence that is longer than the budget"),
            std::string::npos)
      << outcome.out;
}

TEST_F(FilesCommand, FaultsOfAnEditedPlanNameItsFile) {
  Json plan = read_json_file(command_.folder() / "plan.json");
  plan["cluster"] = "a800-32";
  command_.folder().write("other.json", to_text(plan));
  expect_error({"assign", "--plan", "other.json", "--lengths", "lengths.txt"}, 2, "other.json: ");
  plan["cluster"] = "a800-64";
  plan["proposal_seconds"] = -1;
  command_.folder().write("other.json", to_text(plan));
  expect_error({"assign", "--plan", "other.json", "--lengths", "lengths.txt"}, 2,
               "proposal_seconds");
}

TEST_F(FilesCommand, APolicyForLongSequencesNeedsALength) {
  expect_error({"trace", "show", "lengths.txt", "--over-context", "truncate"}, 2, "--context");
}

}  // namespace
}  // namespace hydraulis
