#include <gtest/gtest.h>

#include "base/atomic_file.h"
#include "sim/sweep.h"
#include "tests/base/temporary_folder.h"

namespace hydraulis {
namespace {

Json sweep_with(const Json& faults, const Json& grid) {
  Json json = {{"model", "llama-13b"},
               {"cluster", "a800-16"},
               {"trace", {{"preset", "commoncrawl"}, {"documents", 2000}}},
               {"strategies", "2x(1,8,1)"},
               {"context", 16384},
               {"over_context", "truncate"},
               {"tokens_per_batch", 60000},
               {"iterations", 2},
               {"grid", grid}};
  if (!faults.is_null()) json["faults"] = faults;
  return json;
}

std::vector<ResultRun> swept(const Json& json, const TemporaryFolder& folder) {
  SweepOptions options;
  options.parts = folder / "parts";
  return run_sweep(parse_sweep(json, "sweep.json", folder.path()), options).results.runs;
}

TEST(SweepFaults, FieldsInsideThemAreAxes) {
  const TemporaryFolder folder;
  const Json slow = {{"stragglers", {{{"nodes", {1}}, {"factor", 1}}}}};
  const auto runs = swept(sweep_with(slow, {{"faults.stragglers.0.factor", {1, 1.5, 2}}}), folder);
  ASSERT_EQ(runs.size(), 3);
  for (const ResultRun& run : runs) ASSERT_EQ(run.outcome, RunOutcome::done) << run.message;
  EXPECT_GT(runs[1].summary.mean_seconds, runs[0].summary.mean_seconds);
  EXPECT_GT(runs[2].summary.mean_seconds, runs[1].summary.mean_seconds);
}

TEST(SweepFaults, FilesAreBesideTheSweepAndCheckedAgainstTheCluster) {
  const TemporaryFolder folder;
  folder.write("calm.json", "{}");
  folder.write("rough.json", R"({"jitter": {"compute": {"coefficient_of_variation": 0.3}}})");
  folder.write("wrong.json", R"({"stragglers": [{"nodes": [2], "factor": 2}]})");
  const auto runs =
      swept(sweep_with(nullptr, {{"faults", {"calm.json", "rough.json", "wrong.json"}}}), folder);
  ASSERT_EQ(runs.size(), 3);
  EXPECT_GT(runs[1].summary.mean_seconds, runs[0].summary.mean_seconds);
  EXPECT_EQ(runs[2].outcome, RunOutcome::invalid);
  EXPECT_NE(runs[2].message.find("stragglers[0].nodes"), std::string::npos) << runs[2].message;
}

}  // namespace
}  // namespace hydraulis
