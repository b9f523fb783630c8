#include "sim/parallel.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace hydraulis {
namespace {

TEST(Parallel, EveryIndexIsWorkedOnOnce) {
  for (const int threads : {1, 2, 5}) {
    for (const std::size_t count : {0U, 1U, 3U, 100U}) {
      std::vector<int> times(count, 0);
      for_each_index(count, threads, [&](std::size_t i) { ++times[i]; });
      for (const int t : times) EXPECT_EQ(t, 1);
    }
  }
}

TEST(Parallel, OfSeveralFailuresTheLowestIndexIsReported) {
  for (const int threads : {1, 2, 4}) {
    for (int repeat = 0; repeat < 50; ++repeat) {
      try {
        for_each_index(64, threads, [](std::size_t i) {
          if (i >= 7) throw InputError("item {}", i);
        });
        ADD_FAILURE() << "nothing thrown";
      } catch (const InputError& error) {
        EXPECT_EQ(std::string(error.what()), "item 7");
      }
    }
  }
}

TEST(Parallel, ThreadsOutOfRangeAreRefused) {
  EXPECT_THROW(for_each_index(1, 0, [](std::size_t) {}), InputError);
  EXPECT_THROW(for_each_index(1, 1025, [](std::size_t) {}), InputError);
}

}  // namespace
}  // namespace hydraulis
