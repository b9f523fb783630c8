#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/communicator.h"
#include "tests/cuda_emulator/thread_ranks.h"
#include "tests/kernels/cuda_fixture.h"

#ifdef HYDRAULIS_CUDA_EMULATOR
#include <nccl.h>
#endif

namespace hydraulis {
namespace {

TEST(CudaCommunicator, AloneItCopies) {
  const CudaBackend gpu;
  CpuProcess host = start_cpu_process(1);
  const auto world = cuda::make_communicator(*gpu.device, *host.device, std::move(host.world));
  ASSERT_EQ(world->size(), 1);
  DeviceMatrix from(gpu, DataType::f32, 1, 4, 0);
  DeviceMatrix to(gpu, DataType::f32, 1, 4, 0);
  from.set(3);
  world->all_reduce(from.matrix().data, 4, DataType::f32, Reduction::sum, *gpu.stream);
  world->all_gather(from.matrix().data, to.matrix().data, 4, DataType::f32, *gpu.stream);
  EXPECT_EQ(to.bytes(), from.bytes());
  to.set(0);
  const Message messages[] = {{0, true, from.matrix().data, 16}, {0, false, to.matrix().data, 16}};
  world->exchange(messages, Channel::ring, *gpu.stream);
  EXPECT_EQ(to.bytes(), from.bytes());
}

#ifdef HYDRAULIS_CUDA_EMULATOR
// Ranks are threads, each with a device of its own in the emulator, under its NCCL.

using testing::HasSubstr;

/// A rank of a job.
struct Rank {
  explicit Rank(std::shared_ptr<Communicator> group)
      : hosts(std::move(group)),
        host(cpu::make_device(1, 0)),
        device(cuda::make_device(0)),
        stream(device->make_stream()),
        world(cuda::make_communicator(*device, *host, hosts)) {}
  /// Device memory with these numbers.
  DeviceBuffer put(const std::vector<float>& values) const {
    DeviceBuffer buffer(*device, static_cast<std::int64_t>(values.size() * 4));
    device->copy_to_device(buffer.data(), values.data(), buffer.bytes(), *stream);
    return buffer;
  }
  std::vector<float> get(const DeviceBuffer& buffer) const {
    std::vector<float> values(static_cast<std::size_t>(buffer.bytes() / 4));
    device->copy_to_host(values.data(), buffer.data(), buffer.bytes(), *stream);
    device->synchronize(*stream);
    return values;
  }
  std::shared_ptr<Communicator> hosts;
  std::unique_ptr<Device> host, device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Communicator> world;
};

/// What the ranks threw.
std::vector<std::string> run(int ranks, const std::function<void(Rank&)>& program) {
  return test::run_ranks(ranks, [&](std::shared_ptr<Communicator> hosts) {
    Rank rank(std::move(hosts));
    program(rank);
  });
}

void expect_fine(int ranks, const std::function<void(Rank&)>& program) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    emulator::set_seed(seed);
    for (const std::string& thrown : run(ranks, program)) EXPECT_EQ(thrown, "");
    ASSERT_EQ(emulator::take_fault(), "");
  }
}

float value(int rank, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 31) % 101) - 50;
}
std::vector<float> values(int rank, std::size_t count) {
  std::vector<float> v;
  for (std::size_t i = 0; i < count; ++i) v.push_back(value(rank, i));
  return v;
}

TEST(CudaCommunicator, Collectives) {
  for (const int n : {1, 2, 3}) {
    expect_fine(n, [n](Rank& r) {
      const int me = r.world->rank();
      const auto count = std::size_t{5};
      const auto all = static_cast<std::size_t>(n) * count;
      DeviceBuffer sum = r.put(values(me, count));
      DeviceBuffer most = r.put(values(me, count));
      DeviceBuffer scattered(*r.device, 4 * count);
      const DeviceBuffer input = r.put(values(me, all));
      DeviceBuffer gathered(*r.device, static_cast<std::int64_t>(4 * all));
      DeviceBuffer root = r.put(values(me, count));
      r.world->all_reduce(sum.data(), 5, DataType::f32, Reduction::sum, *r.stream);
      r.world->all_reduce(most.data(), 5, DataType::f32, Reduction::max, *r.stream);
      r.world->reduce_scatter(input.data(), scattered.data(), 5, DataType::f32, *r.stream);
      r.world->all_gather(sum.data(), gathered.data(), 5, DataType::f32, *r.stream);
      r.world->broadcast(root.data(), 20, n - 1, *r.stream);
      const auto sums = r.get(sum);
      const auto mosts = r.get(most);
      const auto parts = r.get(scattered);
      const auto gathers = r.get(gathered);
      const auto roots = r.get(root);
      for (std::size_t i = 0; i < count; ++i) {
        float total = 0;
        float part = 0;
        float greatest = -1000;
        for (int s = 0; s < n; ++s) {
          total += value(s, i);
          part += value(s, static_cast<std::size_t>(me) * count + i);
          greatest = std::max(greatest, value(s, i));
        }
        EXPECT_EQ(sums[i], total);
        EXPECT_EQ(mosts[i], greatest);
        EXPECT_EQ(parts[i], part);
        EXPECT_EQ(roots[i], value(n - 1, i));
        for (int s = 0; s < n; ++s) {
          EXPECT_EQ(gathers[static_cast<std::size_t>(s) * count + i], total);
        }
      }
      r.world->barrier();
    });
  }
}

TEST(CudaCommunicator, MessagesInARingAndToOneself) {
  expect_fine(3, [](Rank& r) {
    const int me = r.world->rank();
    const int next = (me + 1) % 3;
    const int last = (me + 2) % 3;
    const DeviceBuffer from = r.put(values(me, 6));
    DeviceBuffer to(*r.device, 24);
    DeviceBuffer own(*r.device, 24);
    auto* sent = static_cast<char*>(from.data());
    auto* received = static_cast<char*>(to.data());
    const Message messages[] = {{next, true, sent, 12},      {last, false, received, 12},
                                {next, true, sent + 12, 12}, {last, false, received + 12, 12},
                                {me, true, sent, 24},        {me, false, own.data(), 24},
                                {next, true, sent, 0}};
    r.world->exchange(messages, Channel::ring, *r.stream);
    EXPECT_EQ(r.get(to), values(last, 6));
    EXPECT_EQ(r.get(own), values(me, 6));
    EXPECT_EQ(r.world->traffic().point_to_point[static_cast<int>(Channel::ring)], 24);
    const Message unmatched[] = {{me, true, sent, 24}, {me, false, own.data(), 20}};
    EXPECT_THROW(r.world->exchange(unmatched, Channel::ring, *r.stream), CommunicationError);
  });
}

TEST(CudaCommunicator, AllToAll) {
  expect_fine(2, [](Rank& r) {
    const int me = r.world->rank();
    const DeviceBuffer input = r.put(values(me, 5));
    DeviceBuffer output(*r.device, me == 0 ? 16 : 24);
    // Rank 0 keeps 2 numbers and sends 3, rank 1 sends 2 and keeps 3.
    const std::int64_t send[] = {8, 12};
    const std::int64_t send_at[] = {0, 8};
    const std::int64_t receive[] = {me == 0 ? 8 : 12, me == 0 ? 8 : 12};
    const std::int64_t receive_at[] = {0, receive[0]};
    r.world->all_to_all_v(input.data(), send, send_at, output.data(), receive, receive_at,
                          *r.stream);
    const auto result = r.get(output);
    const auto from0 = values(0, 5);
    const auto from1 = values(1, 5);
    EXPECT_EQ(result, me == 0 ? (std::vector<float>{from0[0], from0[1], from1[0], from1[1]})
                              : (std::vector<float>{from0[2], from0[3], from0[4], from1[2],
                                                    from1[3], from1[4]}));
  });
}

// What one rank's stream sends first the other's receives last: no channel waits for another.
TEST(CudaCommunicator, ChannelsDoNotWaitForOneAnother) {
  expect_fine(2, [](Rank& r) {
    const int me = r.world->rank();
    const auto other = r.device->make_stream();
    DeviceBuffer out = r.put(values(me, 4));
    DeviceBuffer back = r.put(values(me + 10, 4));
    r.device->wait(*other, r.device->record(*r.stream));
    const auto activations = [&] {
      const Message message{1 - me, me == 0, out.data(), 16};
      r.world->exchange({&message, 1}, Channel::activations, *r.stream);
    };
    const auto gradients = [&] {
      const Message message{1 - me, me == 1, back.data(), 16};
      r.world->exchange({&message, 1}, Channel::gradients, *other);
    };
    if (me == 0) {
      activations();
      gradients();
    } else {
      gradients();
      activations();
    }
    r.device->wait(*r.stream, r.device->record(*other));
    EXPECT_EQ(r.get(out), values(0, 4));
    EXPECT_EQ(r.get(back), values(11, 4));
  });
}

TEST(CudaCommunicator, Subgroups) {
  expect_fine(4, [](Rank& r) {
    const int me = r.world->rank();
    const int ranks[] = {me % 2 + 2, me % 2};  // in this order
    const auto pair = r.world->subgroup(ranks);
    ASSERT_EQ(pair->size(), 2);
    EXPECT_EQ(pair->rank(), me < 2 ? 1 : 0);
    DeviceBuffer sum = r.put({static_cast<float>(me)});
    pair->all_reduce(sum.data(), 1, DataType::f32, Reduction::sum, *r.stream);
    r.world->all_reduce(sum.data(), 1, DataType::f32, Reduction::max, *r.stream);
    EXPECT_EQ(r.get(sum)[0], 4.0F);  // 1 + 3
  });
}

TEST(CudaCommunicator, MismatchedCollectivesAreFound) {
  emulator::set_seed(0);
  run(2, [](Rank& r) {
    DeviceBuffer x = r.put(values(0, 4));
    r.world->all_reduce(x.data(), r.world->rank() == 0 ? 4 : 3, DataType::f32, Reduction::sum,
                        *r.stream);
    r.device->synchronize(*r.stream);
  });
  cudaDeviceSynchronize();  // what a rank left behind
  EXPECT_THAT(emulator::take_fault(), HasSubstr("mismatched collective"));
}

TEST(CudaCommunicator, APeerThatDoesNotComeIsNotWaitedForForEver) {
  emulator::set_seed(1);
  const auto thrown = run(2, [](Rank& r) {
    r.world->set_timeout_seconds(0.2);
    if (r.world->rank() == 1) return;
    DeviceBuffer x = r.put(values(0, 4));
    r.world->all_reduce(x.data(), 4, DataType::f32, Reduction::sum, *r.stream);
    r.device->synchronize(*r.stream);
  });
  EXPECT_THAT(thrown[0], HasSubstr("rank 0: no communication has ended after 0.2"));
  EXPECT_EQ(thrown[1], "");
  cudaDeviceSynchronize();  // what was given up no longer stands in the way
  EXPECT_EQ(emulator::take_fault(), "");
}

TEST(CudaCommunicator, AMemberThatDoesNotComeIsNotWaitedForForEver) {
  emulator::set_seed(1);
  const auto thrown = run(2, [](Rank& r) {
    r.world->set_timeout_seconds(0.2);
    const int both[] = {0, 1};
    if (r.world->rank() == 0) {
      r.world->subgroup(both);
    } else {  // takes NCCL's identifiers and goes
      std::vector<char> identifiers(1 << 14);
      const auto group = r.hosts->subgroup(both);
      group->broadcast(identifiers.data(), 0, 0, *r.stream);
    }
  });
  EXPECT_THAT(thrown[0], HasSubstr("rank 0: no communication has ended after 0.2"));
  EXPECT_THAT(thrown[0], HasSubstr("/dev/shm"));
  EXPECT_EQ(thrown[1], "");
  EXPECT_EQ(emulator::take_fault(), "");
}

// A block goes back after its last use on another stream, not after all that was put there since:
// rank 1 sends the second message only when it has heard from rank 0's first stream.
TEST(CudaCommunicator, BlocksGoBackWithoutWaitingForLaterCommunications) {
  expect_fine(2, [](Rank& r) {
    r.world->set_timeout_seconds(20);
    DeviceBuffer word = r.put(values(0, 4));
    DeviceBuffer later = r.put(values(1, 4));
    const auto exchange = [&](bool is_send, const DeviceBuffer& buffer, Channel channel,
                              Stream& stream) {
      const Message message{1 - r.world->rank(), is_send, buffer.data(), 16};
      r.world->exchange({&message, 1}, channel, stream);
    };
    if (r.world->rank() == 1) {
      const DeviceBuffer first = r.put(values(2, 4));
      exchange(true, first, Channel::activations, *r.stream);
      exchange(false, word, Channel::gradients, *r.stream);
      r.device->synchronize(*r.stream);
      exchange(true, later, Channel::activations, *r.stream);
      r.device->synchronize(*r.stream);
      return;
    }
    const auto other = r.device->make_stream();
    {
      const DeviceBuffer first(*r.device, 16);
      exchange(false, first, Channel::activations, *other);
      r.device->record(*other);
      exchange(false, later, Channel::activations, *other);
    }
    exchange(true, word, Channel::gradients, *r.stream);
    r.device->synchronize(*r.stream);
    r.device->synchronize(*other);
    EXPECT_EQ(r.get(later), values(1, 4));
  });
}

TEST(NcclEmulation, ACallInProgressMustBeOverBeforeTheNext) {
  emulator::set_seed(0);
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ncclComm_t communicator = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  EXPECT_EQ(ncclCommInitRankConfig(&communicator, 1, id, 0, &config), ncclInProgress);
  EXPECT_EQ(ncclCommFinalize(communicator), ncclInvalidUsage);
  EXPECT_THAT(emulator::take_fault(), HasSubstr("still in progress"));
  ncclCommAbort(communicator);
}

#endif

}  // namespace
}  // namespace hydraulis
