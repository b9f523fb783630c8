#include "traces/statistics.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"

namespace hydraulis {
namespace {

LengthTrace make_trace(std::vector<std::uint32_t> lengths, std::uint64_t empty = 0) {
  LengthTrace trace;
  trace.lengths = std::move(lengths);
  trace.empty_documents = empty;
  return trace;
}

TEST(Statistics, QuantilesOfOneToAThousand) {
  std::vector<std::uint32_t> lengths(1000);
  std::iota(lengths.rbegin(), lengths.rend(), 1u);
  const TraceStatistics s = compute_statistics(make_trace(lengths));
  EXPECT_EQ(s.sequences, 1000u);
  EXPECT_EQ(s.tokens, 500500u);
  EXPECT_EQ(s.mean, 500.5);
  EXPECT_EQ(s.min, 1u);
  EXPECT_EQ(s.max, 1000u);
  EXPECT_EQ(s.sum_squares, 333833500.0);
  EXPECT_EQ(quantile(s, "p1"), 10u);
  EXPECT_EQ(quantile(s, "p50"), 500u);
  EXPECT_EQ(quantile(s, "p99"), 990u);
  EXPECT_EQ(quantile(s, "p99_9"), 999u);
  EXPECT_THROW(quantile(s, "p42"), InputError);
}

TEST(Statistics, BucketEdgesAreInclusiveAndSumsAgree) {
  const TraceStatistics s =
      compute_statistics(make_trace({1, 1024, 1025, 2048, 2049, 1048576, 1048577, 4294967295u}));
  ASSERT_EQ(s.buckets.front().upto, 1024u);
  EXPECT_EQ(s.buckets.front().sequences, 2u);
  EXPECT_EQ(s.buckets.front().tokens, 1025u);
  EXPECT_EQ(s.buckets[1].sequences, 2u);
  EXPECT_EQ(s.buckets[1].tokens, 3073u);
  EXPECT_EQ(s.buckets[10].upto, 1048576u);
  EXPECT_EQ(s.buckets[10].sequences, 1u);
  EXPECT_EQ(s.buckets.back().upto, 4294967296u);
  std::uint64_t sequences = 0;
  std::uint64_t tokens = 0;
  for (const auto& bucket : s.buckets) {
    sequences += bucket.sequences;
    tokens += bucket.tokens;
  }
  EXPECT_EQ(sequences, s.sequences);
  EXPECT_EQ(tokens, s.tokens);
}

TEST(Statistics, EmptyDocumentsChangeOneMeanOnly) {
  const TraceStatistics s = compute_statistics(make_trace({5, 7}, 4));
  EXPECT_EQ(s.mean, 6);
  EXPECT_EQ(s.mean_with_empty, 2);
  EXPECT_EQ(s.buckets.size(), 11u) << "1K to 1M whatever the trace holds";
}

TEST(Statistics, JsonKeysThatStay) {
  const Json json = to_json(compute_statistics(make_trace({5, 7, 3000})));
  EXPECT_EQ(json["sequences"], 3);
  EXPECT_EQ(json["tokens"], 3012);
  EXPECT_EQ(json["mean"], 1004.0);
  EXPECT_EQ(json["max"], 3000);
  EXPECT_EQ(json["quantiles"]["p50"], 7);
  EXPECT_EQ(json["quantiles"]["p99"], 3000);
  EXPECT_EQ(json["buckets"][2]["upto"], 4096);
  EXPECT_EQ(json["buckets"][2]["sequences"], 1);
  EXPECT_EQ(json["buckets"][2]["tokens"], 3000);
}

TEST(Statistics, HistogramShowsEveryOctaveOnce) {
  // Both bars have one scale: 86.2 % is ten marks, so 50 % is 5.8 and 25 % is 2.9 of them.
  const std::string text = draw_histogram(compute_statistics(make_trace({3, 4, 9, 100})), 10);
  EXPECT_EQ(text,
            "       up to  sequences           tokens\n"
            "           4   50.0 % ######        6.0 % #\n"
            "           8    0.0 %               0.0 %\n"
            "          16   25.0 % ###           7.8 % #\n"
            "          32    0.0 %               0.0 %\n"
            "          64    0.0 %               0.0 %\n"
            "         128   25.0 % ###          86.2 % ##########\n")
      << text;
}

TEST(Statistics, SharesOfSequencesAndTokens) {
  const TraceStatistics s = compute_statistics(make_trace({1000, 1000, 2000, 4000}));
  EXPECT_EQ(s.buckets[0].sequence_share, 0.5);
  EXPECT_EQ(s.buckets[0].token_share, 0.25);
  EXPECT_EQ(s.buckets[1].sequence_share, 0.25);
  EXPECT_EQ(s.buckets[2].token_share, 0.5);
}

// A07: the summary of a policy says what it touched.
TEST(Statistics, OverContextPolicyOnAWholeTrace) {
  const LengthTrace trace = make_trace({30, 121, 60});
  OverContextCounts counts;
  using Lengths = std::vector<std::uint32_t>;
  EXPECT_EQ(apply_over_context(trace, 60, OverContext::truncate, counts).lengths,
            (Lengths{30, 60, 60}));
  EXPECT_EQ(counts.sequences, 1u);
  EXPECT_EQ(counts.tokens_removed, 61u);
  EXPECT_EQ(apply_over_context(trace, 60, OverContext::split, counts).lengths,
            (Lengths{30, 60, 60, 1, 60}));
  EXPECT_EQ(counts.tokens_removed, 0u);
  EXPECT_EQ(apply_over_context(trace, 60, OverContext::drop, counts).lengths, (Lengths{30, 60}));
  EXPECT_EQ(counts.tokens_removed, 121u);
  EXPECT_THROW(apply_over_context(trace, 60, OverContext::error, counts), InputError);
  EXPECT_EQ(apply_over_context(trace, 121, OverContext::error, counts).lengths, trace.lengths);
  EXPECT_EQ(counts.sequences, 0u);
}

TEST(Statistics, NothingToDescribe) {
  EXPECT_THROW(compute_statistics(make_trace({})), InputError);
  EXPECT_THROW(compute_statistics(make_trace({0, 1})), InputError);
}

}  // namespace
}  // namespace hydraulis
