// `plan` and `assign`.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/command.h"

namespace hydraulis {
namespace {

/// A folder with lengths.txt and a plan made by hand.
class PlanCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    write_lengths(command_.folder());
    const Outcome plan = command_.run(hand_plan());
    ASSERT_EQ(plan.code, 0) << plan.err;
  }
  Command command_;
};

TEST_F(PlanCommand, JsonHasTheStableKeys) {
  const Json json = command_.json(hand_plan());
  ASSERT_FALSE(json.at("schemes").empty());
  for (const char* key : {"cp", "tp", "pp", "max_tokens"}) {
    EXPECT_TRUE(json.at("schemes")[0].contains(key)) << key;
  }
  ASSERT_EQ(json.at("strategies").size(), 2u);
  ASSERT_EQ(json.at("strategies")[1].size(), 7u);
  EXPECT_EQ(json.at("strategies")[0][0].at("tp"), 16);
  EXPECT_EQ(json.at("strategies")[1][1].at("tp"), 8);
  EXPECT_TRUE(json.contains("optimizer_layout"));
  EXPECT_TRUE(json.contains("proposal_seconds"));
}

// published.md 3.3: optimizer layout dp4·tp16 on 64 A800.
TEST_F(PlanCommand, LongestMicroBatchesAreThePublishedOnes) {
  const Json json = command_.json(hand_plan());
  std::set<std::vector<std::int64_t>> found;
  for (const auto& scheme : json.at("schemes")) {
    found.insert({scheme.at("tp").get<std::int64_t>(), scheme.at("pp").get<std::int64_t>(),
                  scheme.at("max_tokens").get<std::int64_t>()});
  }
  EXPECT_TRUE(found.contains({16, 1, 43520}));
  EXPECT_TRUE(found.contains({8, 1, 21888}));
}

TEST_F(PlanCommand, ReproducibleOutputsAreTheSameBytes) {
  std::vector<std::string> arguments = hand_plan("a.json");
  arguments.emplace_back("--reproducible");
  arguments.emplace_back("--json");
  const Outcome first = command_.run(arguments);
  *std::find(arguments.begin(), arguments.end(), "a.json") = "b.json";
  const Outcome second = command_.run(arguments);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, second.out);
  EXPECT_EQ(first.out.find("proposal_seconds"), std::string::npos);
  EXPECT_EQ(read_text_file(command_.folder() / "a.json"),
            read_text_file(command_.folder() / "b.json"));
}

TEST_F(PlanCommand, AssignPlacesEverySequenceOnce) {
  const Json json = command_.json({"assign", "--plan", "plan.json", "--lengths", "lengths.txt"});
  std::vector<std::uint64_t> ids;
  std::uint64_t tokens = 0;
  double slowest = 0;
  for (const auto& pipeline : json.at("pipelines")) {
    ASSERT_EQ(pipeline.at("micro_batches").size(), pipeline.at("sequence_ids").size());
    for (const char* key : {"cp", "tp", "pp"}) EXPECT_TRUE(pipeline.contains(key)) << key;
    const std::int64_t most = pipeline.at("tp") == 16 ? 43520 : 21888;
    slowest = std::max(slowest, pipeline.at("time_ms").get<double>());
    for (std::size_t m = 0; m < pipeline.at("micro_batches").size(); ++m) {
      const auto lengths = pipeline.at("micro_batches")[m].get<std::vector<std::int64_t>>();
      const auto inside = pipeline.at("sequence_ids")[m].get<std::vector<std::uint64_t>>();
      ASSERT_EQ(lengths.size(), inside.size());
      const std::int64_t sum = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
      EXPECT_LE(sum, most);
      tokens += static_cast<std::uint64_t>(sum);
      ids.insert(ids.end(), inside.begin(), inside.end());
    }
  }
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(ids.size(), 412u);
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
  std::uint64_t given = 0;
  std::istringstream lines(read_text_file(command_.folder() / "lengths.txt"));
  for (std::uint64_t length = 0; lines >> length;) given += length;
  EXPECT_EQ(tokens, given);
  EXPECT_NEAR(json.at("makespan_ms").get<double>(), slowest, 1e-9 * slowest);
  EXPECT_LE(json.at("lower_bound_ms").get<double>(), json.at("makespan_ms").get<double>());
  EXPECT_LE(json.at("set_lower_bound_ms").get<double>(), json.at("lower_bound_ms").get<double>());
  EXPECT_TRUE(json.contains("strategy"));
  EXPECT_TRUE(json.contains("planning_ms"));
}

TEST_F(PlanCommand, AssignIsReproducibleAndLeavesMeasuredTimesOut) {
  const std::vector<std::string> arguments = {"assign",      "--plan", "plan.json",     "--lengths",
                                              "lengths.txt", "--json", "--reproducible"};
  const Outcome first = command_.run(arguments);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, command_.run(arguments).out);
  EXPECT_EQ(first.out.find("planning_ms"), std::string::npos);
}

TEST_F(PlanCommand, OutputGoesToTheFileOnly) {
  const Outcome outcome = command_.run(
      {"assign", "--plan", "plan.json", "--lengths", "lengths.txt", "--json", "-o", "out.json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(read_json_file(command_.folder() / "out.json").contains("makespan_ms"));
}

TEST_F(PlanCommand, BadInputIsRefused) {
  const auto assign = [&](const std::string& plan, const std::string& lengths) {
    return command_.run({"assign", "--plan", plan, "--lengths", lengths});
  };
  const TemporaryFolder& folder = command_.folder();
  expect_refused(assign("none.json", "lengths.txt"), 2, "none.json");
  expect_refused(assign("plan.json", "none.txt"), 2, "none.txt");
  expect_refused(assign("lengths.txt", "lengths.txt"), 2, "lengths.txt");
  folder.write("word.txt", "100\ntwo hundred\n");
  expect_refused(assign("plan.json", "word.txt"), 2, "word.txt");
  folder.write("negative.txt", "100\n-3\n");
  expect_refused(assign("plan.json", "negative.txt"), 2, "negative.txt");
  folder.write("empty.txt", "");
  expect_refused(assign("plan.json", "empty.txt"), 2, "empty.txt");
  folder.write("long.txt", "100\n32769\n");
  expect_refused(assign("plan.json", "long.txt"), 2, "32769");
  const std::string whole = read_text_file(folder / "plan.json");
  folder.write("cut.json", std::string_view(whole).substr(0, whole.size() / 2));
  expect_refused(assign("cut.json", "lengths.txt"), 2, "cut.json");
  folder.write("list.json", "[1, 2]");
  expect_refused(assign("list.json", "lengths.txt"), 2, "list.json");
  folder.write("empty.json", "{}");
  expect_refused(assign("empty.json", "lengths.txt"), 2, "empty.json");
}

TEST_F(PlanCommand, BadPlanRequestsAreRefused) {
  const auto with = [&](const std::string& option, const std::string& value) {
    std::vector<std::string> arguments = hand_plan("bad.json");
    const auto at = std::find(arguments.begin(), arguments.end(), option);
    if (at == arguments.end()) {
      arguments.push_back(option);
      arguments.push_back(value);
    } else {
      *(at + 1) = value;
    }
    return command_.run(arguments);
  };
  expect_refused(with("--model", "llama-33b"), 2, "llama-33b");
  expect_refused(with("--cluster", "a800-63"), 2, "a800-63");
  expect_refused(with("--profile", "none.h5"), 2, "none.h5");
  expect_refused(with("--strategies", "4x(1,16)"), 2, "--strategies");
  expect_refused(with("--strategies", "99999999999x(1,16,1)"), 2, "--strategies");
  expect_refused(with("--strategies", ""), 2, "");
  expect_refused(with("--strategies", "5x(1,16,1)"), 3, "needs 80");
  expect_refused(with("--optimizer-layout", "4,16"), 2, "--optimizer-layout");
  expect_refused(with("-o", "missing/plan.json"), 2, "missing");
  expect_refused(with("-o", "/dev/null"), 2, "/dev/null");
  expect_refused(with("--context", "999999999"), 3, "");
  EXPECT_FALSE(std::filesystem::exists(command_.folder() / "bad.json"));
}

}  // namespace
}  // namespace hydraulis
