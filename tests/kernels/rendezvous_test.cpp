// Ranks that meet over TCP: here threads, each with a connection of its own. What processes do when
// one dies is in tests/runtime/cuda_step_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "base/error.h"
#include "kernels/cpu/stream.h"
#include "kernels/rendezvous/combine.h"
#include "kernels/rendezvous/communicator.h"

namespace hydraulis {
namespace {

using testing::HasSubstr;

/// What each rank threw.
std::vector<std::string> on_ranks(int size, double seconds,
                                  const std::function<void(Communicator&)>& program) {
  static std::atomic<int> jobs = 0;
  const int port = 20'000 + (::getpid() * 16 + jobs++) % 12'000;
  std::vector<std::string> thrown(static_cast<std::size_t>(size));
  std::vector<std::thread> ranks;
  for (int r = 0; r < size; ++r) {
    ranks.emplace_back([&, r] {
      try {
        const SlurmStep step{r, size, r, "test", "localhost", port};
        const auto world =
            rendezvous::make_communicator(std::make_shared<rendezvous::Connection>(step, seconds));
        program(*world);
        // Nobody leaves before all are done, or the job would end.
        world->barrier();
      } catch (const std::exception& e) {
        thrown[static_cast<std::size_t>(r)] = e.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return thrown;
}

TEST(Rendezvous, CollectivesOfAllAndOfGroups) {
  const auto thrown = on_ranks(5, 20, [](Communicator& world) {
    cpu::CpuStream stream;
    const int rank = world.rank();
    std::array<double, 2> sums{rank + 1.0, 0.1 * rank};
    world.all_reduce(sums.data(), 2, DataType::f64, Reduction::sum, stream);
    EXPECT_EQ(sums[0], 15);
    EXPECT_EQ(sums[1], 0.0 + 0.1 + 0.1 * 2 + 0.1 * 3 + 0.1 * 4);  // in the order of ranks
    float most = rank == 3 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(rank);
    world.all_reduce(&most, 1, DataType::f32, Reduction::max, stream);
    EXPECT_TRUE(std::isnan(most));
    std::array<float, 5> all{};
    const float mine = 10.0F * static_cast<float>(rank);
    world.all_gather(&mine, all.data(), 1, DataType::f32, stream);
    EXPECT_EQ(all, (std::array<float, 5>{0, 10, 20, 30, 40}));
    std::vector<char> text(1 << 20, static_cast<char>('a' + rank));
    world.broadcast(text.data(), 1 << 20, 2, stream);
    EXPECT_EQ(text, std::vector<char>(1 << 20, 'c'));
    world.barrier();
    if (rank % 2 == 0) {
      const std::array<int, 3> even{4, 0, 2};  // ranks of the group in this order
      const auto group = world.subgroup(even);
      EXPECT_EQ(group->size(), 3);
      EXPECT_EQ(even[static_cast<std::size_t>(group->rank())], rank);
      std::array<float, 3> of_group{};
      group->all_gather(&mine, of_group.data(), 1, DataType::f32, stream);
      EXPECT_EQ(of_group, (std::array<float, 3>{40, 0, 20}));
    }
    const auto alone = world.subgroup(std::array{rank});
    alone->all_gather(&mine, all.data(), 1, DataType::f32, stream);
    EXPECT_EQ(all[0], mine);
    EXPECT_THROW(world.exchange({}, Channel::other, stream), std::logic_error);
  });
  for (const std::string& text : thrown) EXPECT_EQ(text, "");
}

TEST(Rendezvous, WhatDoesNotMatchIsSaidToAll) {
  const auto thrown = on_ranks(3, 20, [](Communicator& world) {
    cpu::CpuStream stream;
    std::array<double, 4> numbers{};
    world.all_reduce(numbers.data(), world.rank() == 1 ? 3 : 4, DataType::f64, Reduction::sum,
                     stream);
  });
  for (const std::string& text : thrown) {
    EXPECT_THAT(text, HasSubstr("does not match: rank 0 calls all-reduce of 32 bytes"));
    EXPECT_THAT(text, HasSubstr("rank 1 all-reduce of 24 bytes"));
  }
}

TEST(Rendezvous, WhoIsWaitedForIsNamed) {
  std::atomic<int> coming = 2;
  std::atomic<int> waiting = 2;
  const auto thrown = on_ranks(4, 20, [&](Communicator& world) {
    cpu::CpuStream stream;
    world.set_timeout_seconds(1);
    double number = 1;
    if (world.rank() < 2) {
      --coming;
      while (coming > 0) ::usleep(1000);  // so that neither gives up before the other has come
      try {
        world.all_reduce(&number, 1, DataType::f64, Reduction::sum, stream);
      } catch (const CommunicationError& error) {
        --waiting;
        EXPECT_THAT(error.what(), HasSubstr("all-reduce of 1 f64: gave up after 1 s; nothing came "
                                            "from ranks 2, 3"));
      }
      world.set_timeout_seconds(20);
    } else {
      world.set_timeout_seconds(20);
      while (waiting > 0) ::usleep(1000);
    }
  });
  EXPECT_EQ(waiting, 0);
  for (const std::string& text : thrown) EXPECT_THAT(text, testing::Not(HasSubstr("rank 0 does")));
}

TEST(Rendezvous, RanksAreListedShortly) {
  EXPECT_EQ(rendezvous::list_ranks({2}), "rank 2");
  EXPECT_EQ(rendezvous::list_ranks({0, 1}), "ranks 0, 1");
  EXPECT_EQ(rendezvous::list_ranks({0, 3, 4, 5, 9, 10}), "ranks 0, 3-5, 9, 10");
}

TEST(SlurmStep, TheFirstHostOfAList) {
  EXPECT_EQ(first_host("login"), "login");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("node[003-005,9],x"), "node003");
  EXPECT_EQ(first_host("node[7]"), "node7");
  EXPECT_EQ(first_host("rack[1-2]n[03-08].cluster,y[1]"), "rack1n03.cluster");
  for (const char* wrong : {"", "node[", "node[]", "node[a]", "node[3"}) {
    EXPECT_EQ(first_host(wrong), "") << wrong;
  }
}

}  // namespace
}  // namespace hydraulis
