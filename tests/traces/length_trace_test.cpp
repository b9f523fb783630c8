#include "traces/length_trace.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/traces/files.h"
#include "traces/statistics.h"
#include "traces/store.h"

namespace hydraulis {
namespace {

TEST(LoadTrace, ByEnding) {
  TestFolder folder;
  const std::vector<std::uint32_t> expected = {5, 6};
  EXPECT_EQ(load_trace(folder.write("t.txt", "5\n6\n")).lengths, expected);
  EXPECT_EQ(load_trace(folder.write("t.csv", "5,1\n6,1\n")).lengths, expected);
  LengthTrace trace;
  trace.lengths = expected;
  write_trace(folder / "t.h5", trace);
  EXPECT_EQ(load_trace(folder / "t.h5").lengths, expected);
}

TEST(LoadTrace, WhatItCannotLoadIsSaid) {
  TestFolder folder;
  const std::string unknown = error_of([] { load_trace("githu"); });
  for (const auto& known : known_traces()) {
    EXPECT_NE(unknown.find(known.name), std::string::npos) << unknown;
  }
  EXPECT_NE(error_of([&] { load_trace(folder.write("t.jsonl", "{}")); }).find("tokenizer"),
            std::string::npos);
  EXPECT_NE(error_of([&] { load_trace(folder.write("t.bin", "x")); }).find("cannot tell"),
            std::string::npos);
}

TEST(LoadTrace, SyntheticPresetsByName) {
  for (const char* name : {"commoncrawl", "github", "wikipedia", "longmix"}) {
    const LengthTrace trace = load_trace(name);
    EXPECT_EQ(trace.lengths.size(), 200000u);
    EXPECT_NE(trace.source.find(name), std::string::npos);
    EXPECT_EQ(trace.lengths, load_trace(name).lengths);
  }
}

// The figures under which the traces were published with the project.
TEST(LoadTrace, ShippedTracesHaveTheirPublishedFigures) {
  struct Expected {
    const char* name;
    std::uint64_t documents;
    double tokens;  // millions
    std::uint32_t p1, p10, p25, p50, p75, p90, p95, p99, p99_9, max;
  };
  for (const Expected& e :
       {Expected{"github-gpt2", 200000, 657.7, 15, 106, 286, 744, 2269, 6309, 11989, 42518, 181453,
                 718909},
        {"github-cl100k", 200000, 422.3, 11, 76, 202, 502, 1422, 3912, 7375, 25835, 136974, 614944},
        {"web-gpt2", 98274, 196.3, 91, 139, 239, 573, 1530, 4116, 7346, 23070, 85870, 663921},
        {"web-cl100k", 98274, 153.0, 80, 119, 201, 471, 1220, 3201, 5753, 17581, 68780, 369499}}) {
    const LengthTrace trace = load_trace(e.name);
    const TraceStatistics s = compute_statistics(trace);
    EXPECT_EQ(s.sequences, e.documents) << e.name;
    EXPECT_NEAR(static_cast<double>(s.tokens) / 1e6, e.tokens, 0.06) << e.name;
    const std::uint32_t expected[] = {e.p1,  e.p10, e.p25, e.p50,  e.p75,
                                      e.p90, e.p95, e.p99, e.p99_9};
    for (std::size_t i = 0; i < s.quantiles.size(); ++i) {
      // Published with another convention between two neighbours.
      EXPECT_NEAR(s.quantiles[i].second, expected[i], 1 + expected[i] * 0.001)
          << e.name << " " << s.quantiles[i].first;
    }
    EXPECT_EQ(s.max, e.max);
    EXPECT_FALSE(trace.origin.empty());
    EXPECT_FALSE(trace.licence.empty());
    EXPECT_FALSE(trace.tokenizer.empty());
  }
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(HYDRAULIS_SOURCE_DIR) + "/traces/data")) {
    EXPECT_LT(entry.file_size(), 2u << 20) << entry.path();
  }
}

TEST(LoadTrace, DataFolderCanBeOverridden) {
  TestFolder folder;
  LengthTrace trace;
  trace.lengths = {1, 2, 3};
  write_trace(folder / "github_like.gpt2.h5", trace);
  ASSERT_EQ(::setenv("HYDRAULIS_DATA", (folder / "").c_str(), 1), 0);
  EXPECT_EQ(load_trace("github-gpt2").lengths, trace.lengths);
  EXPECT_THROW(load_trace("web-gpt2"), InputError);
  ::unsetenv("HYDRAULIS_DATA");
}

}  // namespace
}  // namespace hydraulis
