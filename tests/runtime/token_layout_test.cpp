// Where a micro-batch's tokens lie: values worked out by hand, and the causal relation itself.
#include "runtime/token_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "base/random.h"

namespace hydraulis {
namespace {

using testing::ElementsAre;
using Lengths = std::vector<std::uint32_t>;

TEST(TokenLayout, OneRankHoldsTheTokensAsTheyAre) {
  const TokenLayout layout = token_layout(Lengths{3, 0, 2}, 1, 1, 0);
  EXPECT_EQ(layout.rows, 5);
  EXPECT_THAT(layout.positions, ElementsAre(0, 1, 2, 0, 1));
  EXPECT_THAT(layout.sources, ElementsAre(0, 1, 2, 3, 4));
}

TEST(TokenLayout, TensorParallelRowsAreAMultiple) {  // case A15
  const TokenLayout layout = token_layout(Lengths{1001}, 1, 4, 0);
  EXPECT_EQ(layout.rows, 1004);
  EXPECT_EQ(layout.used_rows, 1001);
  EXPECT_EQ(layout.sources[1000], 1000);
  EXPECT_EQ(layout.sources[1001], -1);
}

TEST(TokenLayout, ZigzagOfEightTokens) {  // case A13, tokens counted from 0
  EXPECT_THAT(token_layout(Lengths{8}, 2, 1, 0).sources, ElementsAre(0, 1, 6, 7));
  EXPECT_THAT(token_layout(Lengths{8}, 2, 1, 1).sources, ElementsAre(2, 3, 4, 5));
}

TEST(TokenLayout, SevenTokensAreEightRowsOfWhichOneIsNone) {  // case A12
  EXPECT_THAT(token_layout(Lengths{7}, 2, 1, 0).sources, ElementsAre(0, 1, 6, -1));
  EXPECT_THAT(token_layout(Lengths{7}, 2, 1, 1).sources, ElementsAre(2, 3, 4, 5));
}

TEST(TokenLayout, EverySequenceIsPaddedByItself) {  // case A13: padded ends 4, 12, 20, 32
  for (int rank = 0; rank < 2; ++rank) {
    const TokenLayout layout = token_layout(Lengths{4, 8, 6, 10}, 2, 1, rank);
    std::vector<std::int64_t> begins;
    std::vector<std::int64_t> padded;
    for (const TokenLayout::Piece& piece : layout.pieces) {
      begins.push_back(2 * piece.begin);  // both ranks hold half of what lies before
      padded.push_back(4 * piece.chunk);
    }
    EXPECT_THAT(begins, ElementsAre(0, 4, 12, 20));
    EXPECT_THAT(padded, ElementsAre(4, 8, 8, 12));
    EXPECT_EQ(layout.rows, 16);
  }
  // The third sequence's six tokens begin at token 12 and end before 18.
  EXPECT_THAT(token_layout(Lengths{4, 8, 6, 10}, 2, 1, 0).sources,
              ElementsAre(0, 3, 4, 5, 10, 11, 12, 13, -1, -1, 18, 19, 20, 27, -1, -1));
}

/// Over all ranks: every token is on one rank once, and every query meets each key of its sequence
/// up to itself once and no other key.
TEST(TokenLayout, TheSegmentsOfAllRanksAreTheCausalRelation) {
  Random random(5);
  for (int round = 0; round < 60; ++round) {
    const int cp = 1 + static_cast<int>(random.below(4));
    const int tp = 1 + static_cast<int>(random.below(4));
    Lengths lengths(1 + random.below(5));
    for (std::uint32_t& length : lengths) length = static_cast<std::uint32_t>(random.below(20));
    const std::int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
    std::vector<std::int64_t> sequence_of;
    std::vector<std::int64_t> position_of;
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      for (std::uint32_t i = 0; i < lengths[s]; ++i) {
        sequence_of.push_back(static_cast<std::int64_t>(s));
        position_of.push_back(i);
      }
    }
    std::vector<TokenLayout> ranks;
    for (int r = 0; r < cp; ++r) ranks.push_back(token_layout(lengths, cp, tp, r));
    std::vector<int> seen(tokens, 0);
    for (const TokenLayout& layout : ranks) {
      EXPECT_EQ(layout.rows, ranks[0].rows);
      EXPECT_EQ(layout.rows % tp, 0);
      ASSERT_EQ(static_cast<std::int64_t>(layout.sources.size()), layout.rows);
      for (std::int64_t row = 0; row < layout.rows; ++row) {
        const std::int64_t token = layout.sources[row];
        if (token < 0) continue;
        ++seen[token];
        EXPECT_EQ(layout.positions[row], position_of[token]);
      }
    }
    EXPECT_EQ(seen, std::vector<int>(tokens, 1));

    std::vector<std::multiset<std::int64_t>> keys(tokens);
    for (const TokenLayout& mine : ranks) {
      for (int from = 0; from < cp; ++from) {
        for (const AttentionSegment& segment : mine.segments(from)) {
          for (std::int64_t q = 0; q < segment.query_count; ++q) {
            const std::int64_t query = mine.sources.at(segment.query_begin + q);
            if (query < 0) continue;
            const std::int64_t count = segment.causal ? q + 1 : segment.key_count;
            for (std::int64_t k = 0; k < count; ++k) {
              keys[query].insert(ranks[from].sources.at(segment.key_begin + k));
            }
          }
        }
      }
    }
    for (std::int64_t token = 0; token < tokens; ++token) {
      std::multiset<std::int64_t> expected;
      for (std::int64_t i = token - position_of[token]; i <= token; ++i) expected.insert(i);
      EXPECT_EQ(keys[token], expected)
          << "cp " << cp << ", token " << token << " of sequence " << sequence_of[token];
    }
  }
}

TEST(TokenLayout, CausalWorkIsTheSameOnEveryRank) {
  for (const int cp : {2, 3, 4}) {
    std::set<std::int64_t> work;
    for (int rank = 0; rank < cp; ++rank) {
      const TokenLayout layout = token_layout(Lengths{48, 96}, cp, 1, rank);
      std::int64_t pairs = 0;
      for (int from = 0; from < cp; ++from) {
        for (const AttentionSegment& s : layout.segments(from)) {
          pairs += s.causal ? s.query_count * (s.query_count + 1) / 2 : s.query_count * s.key_count;
        }
      }
      work.insert(pairs);
    }
    EXPECT_EQ(work.size(), 1U) << "cp " << cp;
  }
}

}  // namespace
}  // namespace hydraulis
