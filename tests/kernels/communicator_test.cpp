// A process that mpirun did not start: a world of one. communicator_mpi_test.cpp has the others.
#include "kernels/communicator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/process.h"

namespace hydraulis {
namespace {

TEST(Communicator, AProcessAloneIsAWorldOfOneAndStartsAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  const CpuProcess process = start_cpu_process(1);
  EXPECT_EQ(process.world->rank(), 0);
  EXPECT_EQ(process.world->size(), 1);
  process.world->barrier();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST(Communicator, CollectivesOfOneCopy) {
  const CpuProcess process = start_cpu_process(1);
  Communicator& world = *process.world;
  const auto stream = process.device->make_stream();
  const std::vector<float> in = {1, 2, 3};
  std::vector<float> out(3);
  world.all_gather(in.data(), out.data(), 3, DataType::f32, *stream);
  EXPECT_EQ(out, in);
  out.assign(3, 0);
  world.reduce_scatter(in.data(), out.data(), 3, DataType::f32, *stream);
  EXPECT_EQ(out, in);
  world.all_reduce(out.data(), 3, DataType::f32, Reduction::sum, *stream);
  world.broadcast(out.data(), 12, 0, *stream);
  EXPECT_EQ(out, in);
  const std::vector<std::int64_t> bytes = {8};
  const std::vector<std::int64_t> from = {4};
  const std::vector<std::int64_t> to = {0};
  world.all_to_all_v(in.data(), bytes, from, out.data(), bytes, to, *stream);
  EXPECT_EQ(out, (std::vector<float>{2, 3, 3}));
  EXPECT_EQ(world.traffic().total(), 0);
  const std::vector<int> only = {0};
  const auto group = world.subgroup(only);
  EXPECT_EQ(group->size(), 1);
}

TEST(Communicator, MessagesToOneselfAreCopiedInOrderOrRefused) {
  const CpuProcess process = start_cpu_process(1);
  const auto stream = process.device->make_stream();
  int a = 1, b = 2, c = 0, d = 0;
  const std::vector<Message> messages = {
      {0, true, &a, 4}, {0, false, &c, 4}, {0, false, &d, 4}, {0, true, &b, 4}};
  process.world->exchange(messages, Channel::other, *stream);
  EXPECT_EQ(c, 1);
  EXPECT_EQ(d, 2);
  const std::vector<Message> unanswered = {{0, true, &a, 4}};
  EXPECT_THROW(process.world->exchange(unanswered, Channel::other, *stream), CommunicationError);
  const std::vector<Message> unequal = {{0, true, &a, 4}, {0, false, &c, 2}};
  EXPECT_THROW(process.world->exchange(unequal, Channel::other, *stream), CommunicationError);
}

TEST(Communicator, WrongArgumentsAreLogicErrors) {
  const CpuProcess process = start_cpu_process(1);
  Communicator& world = *process.world;
  const auto stream = process.device->make_stream();
  float x = 0;
  EXPECT_THROW(world.all_reduce(&x, -1, DataType::f32, Reduction::sum, *stream), std::logic_error);
  EXPECT_THROW(world.all_reduce(&x, 1, DataType::bf16, Reduction::sum, *stream), std::logic_error);
  EXPECT_THROW(world.broadcast(&x, 4, 1, *stream), std::logic_error);
  const std::vector<Message> nobody = {{1, true, &x, 4}};
  EXPECT_THROW(world.exchange(nobody, Channel::ring, *stream), std::logic_error);
  for (const std::vector<int>& ranks :
       {std::vector<int>{}, std::vector<int>{0, 0}, std::vector<int>{1}}) {
    EXPECT_THROW(world.subgroup(ranks), std::logic_error);
  }
  EXPECT_THROW(world.set_timeout_seconds(0), std::logic_error);
}

TEST(Communicator, TheTimeLimitComesFromTheEnvironment) {
  const char* const name = "HYDRAULIS_TIMEOUT_SECONDS";
  unsetenv(name);
  EXPECT_EQ(cpu::timeout_from_environment(), 60);
  setenv(name, "2.5", 1);
  EXPECT_EQ(cpu::timeout_from_environment(), 2.5);
  for (const char* wrong : {"", "soon", "5s", "0", "-1", "inf", "nan"}) {
    setenv(name, wrong, 1);
    EXPECT_THROW(cpu::timeout_from_environment(), InputError) << wrong;
  }
  unsetenv(name);
}

}  // namespace
}  // namespace hydraulis
