#include "planner/one_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/error.h"

namespace hydraulis {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string data(const std::string& file) { return HYDRAULIS_TEST_DATA "/lengths/" + file; }

std::uint64_t tokens(const OneBatch& batch) {
  std::uint64_t sum = 0;
  for (const Sequence& sequence : batch.sequences) sum += sequence.length;
  return sum;
}

void expect_numbered(const OneBatch& batch) {
  for (std::size_t i = 0; i < batch.sequences.size(); ++i) EXPECT_EQ(batch.sequences[i].id, i);
}

TEST(OneBatch, ZerosAreLeftOutAndCounted) {
  const OneBatch batch = load_one_batch(data("zeros_and_ones.txt"), 4096, OverContext::error);
  EXPECT_EQ(batch.empty, 2u);
  ASSERT_EQ(batch.sequences.size(), 4u);
  EXPECT_EQ(tokens(batch), 5u);
  EXPECT_EQ(batch.sequences[3].length, 2u);
  expect_numbered(batch);
}

TEST(OneBatch, OverTheContextIsRefusedWithPositionLengthAndContext) {
  try {
    load_one_batch(data("one_over_cap60.txt"), 60, OverContext::error);
    FAIL() << "expected InputError";
  } catch (const InputError& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("61"), HasSubstr("60"), HasSubstr("10")));
  }
  try {
    load_one_batch(data("over_two_caps_cap60.txt"), 60, OverContext::error);
    FAIL() << "expected InputError";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("121"), HasSubstr("60")));
  }
}

TEST(OneBatch, EveryTokenIsPlacedOrCounted) {
  struct Expected {
    OverContext policy;
    std::size_t sequences;
    std::uint64_t removed, dropped;
  };
  // Ten of 30 and one of 61 under a context of 60.
  for (const auto& [policy, sequences, removed, dropped] :
       {Expected{OverContext::truncate, 11, 1, 0},
        {OverContext::split, 12, 0, 0},
        {OverContext::drop, 10, 61, 1}}) {
    const OneBatch batch = load_one_batch(data("one_over_cap60.txt"), 60, policy);
    EXPECT_EQ(batch.sequences.size(), sequences);
    EXPECT_EQ(batch.counts.sequences, 1u);
    EXPECT_EQ(batch.counts.tokens_removed, removed);
    EXPECT_EQ(batch.dropped, dropped);
    EXPECT_EQ(tokens(batch) + batch.counts.tokens_removed, 361u);
    for (const Sequence& sequence : batch.sequences) EXPECT_LE(sequence.length, 60u);
    expect_numbered(batch);
  }
}

TEST(OneBatch, TwiceTheContextAndMore) {
  const OneBatch split = load_one_batch(data("over_two_caps_cap60.txt"), 60, OverContext::split);
  ASSERT_EQ(split.sequences.size(), 3u);
  EXPECT_EQ(split.sequences[0].length, 60u);
  EXPECT_EQ(split.sequences[1].length, 60u);
  EXPECT_EQ(split.sequences[2].length, 1u);
  const OneBatch cut = load_one_batch(data("over_two_caps_cap60.txt"), 60, OverContext::truncate);
  EXPECT_EQ(tokens(cut), 60u);
  EXPECT_EQ(cut.counts.tokens_removed, 61u);
}

TEST(OneBatch, DroppingEverythingOrNothingToTrainIsRefused) {
  EXPECT_THROW(load_one_batch(data("over_two_caps_cap60.txt"), 60, OverContext::drop), InputError);
  const auto path = std::filesystem::path(::testing::TempDir()) / "one_batch_zeros.txt";
  std::ofstream(path) << "0\n0\n";
  EXPECT_THROW(load_one_batch(path, 60, OverContext::error), InputError);
  std::filesystem::remove(path);
  EXPECT_THROW(load_one_batch(data("not_there.txt"), 60, OverContext::error), InputError);
}

}  // namespace
}  // namespace hydraulis
