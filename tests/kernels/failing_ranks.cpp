// failing_ranks CASE: a job whose ranks die, hang or disagree, run under mpirun by
// communicator_failure_test.cpp. A rank that catches a CommunicationError prints it and ends the
// job with exit code 7, as every program of the project must end it.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernels/communicator.h"

namespace {

using namespace hydraulis;

void sleep_long() { std::this_thread::sleep_for(std::chrono::seconds(300)); }

void exchange_of_different_lengths(Communicator& world, Device& device, std::int64_t sent,
                                   std::int64_t expected) {
  std::vector<char> data(static_cast<std::size_t>(std::max(sent, expected)));
  const auto stream = device.make_stream();
  if (world.rank() == 0) {
    const Message m{1, true, data.data(), sent};
    world.exchange({&m, 1}, Channel::ring, *stream);
  } else if (world.rank() == 1) {
    const Message m{0, false, data.data(), expected};
    world.exchange({&m, 1}, Channel::ring, *stream);
  }
  device.synchronize(*stream);
  // Who noticed nothing must be ended by the others.
  sleep_long();
}

void run(const std::string& name, Communicator& world, Device& device) {
  const auto stream = device.make_stream();
  const bool odd_one = world.rank() == 1;
  std::vector<float> buffer(4'000'000);
  const auto sum = [&](std::int64_t count) {
    world.all_reduce(buffer.data(), count, DataType::f32, Reduction::sum, *stream);
    device.synchronize(*stream);
  };
  if (name == "silent_in_barrier") {
    world.set_timeout_seconds(1);
    if (odd_one) sleep_long();
    world.barrier();
  } else if (name == "silent_in_all_reduce") {
    world.set_timeout_seconds(1);
    if (odd_one) sleep_long();
    sum(4'000'000);
  } else if (name == "silent_in_subgroup") {
    world.set_timeout_seconds(1);
    if (odd_one) sleep_long();
    const std::vector<int> ranks = {2, 1, 0};
    world.subgroup(ranks);
  } else if (name == "silent_in_exchange") {
    world.set_timeout_seconds(1);
    if (odd_one) sleep_long();
    const Message m{1, false, buffer.data(), 4000};
    world.exchange({&m, 1}, Channel::gradients, *stream);
    const auto event = device.record(*stream);
    while (!event->done()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  } else if (name == "different_count") {
    sum(odd_one ? 11 : 10);
    sleep_long();
  } else if (name == "different_large_count") {
    sum(odd_one ? 3'000'000 : 4'000'000);
    sleep_long();
  } else if (name == "different_operation") {
    if (odd_one) {
      std::vector<float> all(3 * 16);
      world.all_gather(buffer.data(), all.data(), 16, DataType::f32, *stream);
      device.synchronize(*stream);
    } else {
      sum(16);
    }
    sleep_long();
  } else if (name == "different_order") {  // the second collective of the others is its first
    if (!odd_one) sum(0);
    sum(16);
    sleep_long();
  } else if (name == "different_root") {
    world.broadcast(buffer.data(), 64, odd_one ? 1 : 0, *stream);
    device.synchronize(*stream);
    sleep_long();
  } else if (name == "different_subgroup") {
    const std::vector<int> two = {0, 1};
    const std::vector<int> other = {1, 0};
    if (world.rank() < 2) world.subgroup(odd_one ? other : two);
    sleep_long();
  } else if (name == "too_long") {
    exchange_of_different_lengths(world, device, 100, 60);
  } else if (name == "too_long_by_far") {
    exchange_of_different_lengths(world, device, 5'000'000, 2'500'000);
  } else if (name == "too_short") {
    exchange_of_different_lengths(world, device, 60, 100);
  } else if (name == "killed") {
    if (odd_one) std::raise(SIGKILL);
    sum(4'000'000);
  } else if (name == "killed_later") {
    if (odd_one)
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        std::raise(SIGKILL);
      }).detach();
    for (;;) sum(1'000'000);
  } else if (name == "throws") {
    if (odd_one) throw std::runtime_error("a file could not be read");
    sum(4'000'000);
  } else if (name == "uncaught") {
    if (odd_one) std::terminate();
    sum(4'000'000);
  } else if (name == "returns") {  // leaves main after a failure without ending the job
    world.set_timeout_seconds(1);
    if (odd_one) sleep_long();
    try {
      world.barrier();
    } catch (const CommunicationError&) {
      std::fputs("returns\n", stderr);
    }
  } else {
    throw std::runtime_error("no case " + name);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CpuProcess process = start_cpu_process(1);
  try {
    run(argc > 1 ? argv[1] : "", *process.world, *process.device);
  } catch (const CommunicationError& e) {
    std::fprintf(stderr, "CommunicationError: %s\n", e.what());
    process.world->abort(7);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %d: %s\n", process.world->rank(), e.what());
    process.world->abort(8);
  }
  return 0;
}
