#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "kernels/communicator.h"
#include "tests/mpi_process.h"

namespace hydraulis {
namespace {

using test::mpi_process;

Communicator& world() { return *mpi_process().world; }
Device& device() { return *mpi_process().device; }

template <typename T>
constexpr DataType type_of() {
  return sizeof(T) == 8 ? DataType::f64 : DataType::f32;
}

/// Small whole numbers that differ by rank and place: their sums are exact in any order.
template <typename T>
T value(int rank, std::int64_t i) {
  return static_cast<T>((i * 7 + rank * 31) % 101 - 50);
}

template <typename T>
std::vector<T> values(int rank, std::int64_t count) {
  std::vector<T> v(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) v[static_cast<std::size_t>(i)] = value<T>(rank, i);
  return v;
}

/// Sizes around every boundary of the algorithms: nothing, one, odd, small to large, several
/// blocks.
const std::vector<std::int64_t> kCounts = {0, 1, 2, 3, 7, 1000, 4096, 4097, 65537, 524288, 1300001};

template <typename T>
void check_collectives(Communicator& group, std::int64_t count) {
  SCOPED_TRACE(testing::Message() << group.size() << " ranks, " << count << " elements");
  const int n = group.size();
  const int me = group.rank();
  const auto stream = device().make_stream();
  const auto size = static_cast<std::size_t>(count);
  const DataType type = type_of<T>();

  std::vector<T> sum = values<T>(me, count);
  group.all_reduce(sum.data(), count, type, Reduction::sum, *stream);
  std::vector<T> most = values<T>(me, count);
  group.all_reduce(most.data(), count, type, Reduction::max, *stream);
  std::vector<T> gathered(size * static_cast<std::size_t>(n), T(-1));
  const std::vector<T> mine = values<T>(me, count);
  group.all_gather(mine.data(), gathered.data(), count, type, *stream);
  const std::vector<T> whole = values<T>(me, count * n);
  std::vector<T> scattered(size, T(-1));
  group.reduce_scatter(whole.data(), scattered.data(), count, type, *stream);
  const int root = static_cast<int>(count % n);
  std::vector<T> spread = values<T>(me, count);
  group.broadcast(spread.data(), count * size_of(type), root, *stream);
  device().synchronize(*stream);

  std::vector<T> total(size), greatest(size, std::numeric_limits<T>::lowest()), share(size), all;
  for (int r = 0; r < n; ++r) {
    const std::vector<T> theirs = values<T>(r, count);
    for (std::size_t i = 0; i < size; ++i) {
      total[i] += theirs[i];
      greatest[i] = std::max(greatest[i], theirs[i]);
      share[i] += value<T>(r, me * count + static_cast<std::int64_t>(i));
    }
    all.insert(all.end(), theirs.begin(), theirs.end());
  }
  ASSERT_TRUE(sum == total);
  ASSERT_TRUE(most == greatest);
  ASSERT_TRUE(gathered == all);
  ASSERT_TRUE(scattered == share);
  ASSERT_TRUE(spread == values<T>(root, count));
}

TEST(CommunicatorMpi, CollectivesAgreeWithPlainSumsAtEverySize) {
  for (const auto count : kCounts) {
    check_collectives<float>(world(), count);
    check_collectives<double>(world(), count);
  }
}

/// Every set of at least one of the ranks, by bits.
std::vector<int> members_of(unsigned set) {
  std::vector<int> ranks;
  for (int r = 0; r < world().size(); ++r) {
    if ((set >> r & 1U) != 0) ranks.push_back(r);
  }
  return ranks;
}

TEST(CommunicatorMpi, EverySetOfRanksMakesAGroupAndTheyDoNotDisturbOneAnother) {
  std::map<unsigned, std::unique_ptr<Communicator>> groups;
  for (unsigned set = 1; set < 1U << world().size(); ++set) {
    if ((set >> world().rank() & 1U) != 0) groups[set] = world().subgroup(members_of(set));
  }
  for (auto& [set, group] : groups) {
    const auto members = members_of(set);
    ASSERT_EQ(group->size(), static_cast<int>(members.size()));
    ASSERT_EQ(members[static_cast<std::size_t>(group->rank())], world().rank());
    check_collectives<float>(*group, 37);
  }
  check_collectives<double>(*groups.at((1U << world().size()) - 1), 70001);
}

TEST(CommunicatorMpi, ASubgroupKeepsTheOrderOfItsListAndMakesSubgroupsItself) {
  std::vector<int> reversed(static_cast<std::size_t>(world().size()));
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  const auto group = world().subgroup(reversed);
  ASSERT_EQ(group->rank(), world().size() - 1 - world().rank());
  check_collectives<float>(*group, 1000);
  // Its odd and its even places, in its own ranks.
  std::vector<int> half;
  for (int r = group->rank() % 2; r < group->size(); r += 2) half.push_back(r);
  const auto part = group->subgroup(half);
  EXPECT_EQ(part->rank(), group->rank() / 2);
  check_collectives<float>(*part, 20001);
  EXPECT_EQ(&part->traffic(), &world().traffic());
  part->set_timeout_seconds(59);
  EXPECT_EQ(world().timeout_seconds(), 59);
  world().set_timeout_seconds(60);
}

TEST(CommunicatorMpi, SumsHaveTheBitsOfAddingInTheOrderOfRanks) {
  const int n = world().size();
  const auto stream = device().make_stream();
  for (const std::int64_t count : {5, 3000, 300001}) {  // whole, whole, in shares and blocks
    std::vector<std::vector<float>> all;
    for (int r = 0; r < n; ++r) {
      Random random(17, static_cast<std::uint64_t>(r));
      auto& v = all.emplace_back(static_cast<std::size_t>(count));
      for (auto& x : v) x = static_cast<float>(random.uniform() * 2 - 1);
    }
    std::vector<float> expected = all[0];
    for (int r = 1; r < n; ++r) {
      for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] += all[static_cast<std::size_t>(r)][i];
      }
    }
    for (int repeat = 0; repeat < 3; ++repeat) {
      std::vector<float> sum = all[static_cast<std::size_t>(world().rank())];
      world().all_reduce(sum.data(), count, DataType::f32, Reduction::sum, *stream);
      device().synchronize(*stream);
      ASSERT_EQ(std::memcmp(sum.data(), expected.data(), sum.size() * sizeof(float)), 0) << count;
    }
  }
}

TEST(CommunicatorMpi, ANanWinsTheMaximumWhereverItComesFrom) {
  const auto stream = device().make_stream();
  const auto n = static_cast<std::size_t>(world().size());
  for (const std::size_t spare : {0, 50'000}) {
    std::vector<float> x(n + spare, static_cast<float>(world().rank()));
    x[static_cast<std::size_t>(world().rank())] = std::numeric_limits<float>::quiet_NaN();
    world().all_reduce(x.data(), static_cast<std::int64_t>(x.size()), DataType::f32, Reduction::max,
                       *stream);
    device().synchronize(*stream);
    for (std::size_t i = 0; i < n; ++i) ASSERT_TRUE(std::isnan(x[i])) << i;
    for (std::size_t i = n; i < x.size(); ++i) ASSERT_EQ(x[i], world().size() - 1) << i;
  }
}

TEST(CommunicatorMpi, GatheringAndScatteringWorkInPlace) {
  const auto stream = device().make_stream();
  const int n = world().size();
  const int me = world().rank();
  constexpr std::int64_t count = 150'001;
  std::vector<double> x = values<double>(me, count * n);
  world().reduce_scatter(x.data(), x.data() + me * count, count, DataType::f64, *stream);
  world().all_gather(x.data() + me * count, x.data(), count, DataType::f64, *stream);
  device().synchronize(*stream);
  for (std::int64_t i = 0; i < count * n; ++i) {
    double total = 0;
    for (int r = 0; r < n; ++r) total += value<double>(r, i);
    ASSERT_EQ(x[static_cast<std::size_t>(i)], total) << i;
  }
}

TEST(CommunicatorMpi, AllGatherMovesAnyType) {
  const auto stream = device().make_stream();
  const auto n = static_cast<std::size_t>(world().size());
  const std::vector<std::uint16_t> mine(3, static_cast<std::uint16_t>(world().rank() + 1));
  std::vector<std::uint16_t> all(3 * n);
  world().all_gather(mine.data(), all.data(), 3, DataType::bf16, *stream);
  device().synchronize(*stream);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], i / 3 + 1);
  EXPECT_THROW(world().all_reduce(all.data(), 3, DataType::bf16, Reduction::sum, *stream),
               std::logic_error);
}

TEST(CommunicatorMpi, AllToAllMovesRandomBlocksBetweenAllPairs) {
  const int n = world().size();
  const int me = world().rank();
  const auto stream = device().make_stream();
  for (std::uint64_t round = 0; round < 20; ++round) {
    // The same on every rank: bytes[i][j] go from i to j.
    Random random(3, round);
    std::vector<std::vector<std::int64_t>> bytes(static_cast<std::size_t>(n));
    for (auto& row : bytes) {
      for (int j = 0; j < n; ++j) {
        const auto most = random.uniform() < 0.2 ? 1.0 : random.uniform() < 0.5 ? 300.0 : 90'000.0;
        row.push_back(static_cast<std::int64_t>(random.uniform() * most));
      }
    }
    const auto byte = [](int from, int to, std::int64_t i) {
      return static_cast<unsigned char>(from * 37 + to * 11 + i);
    };
    std::vector<std::int64_t> out_bytes, out_offsets, in_bytes, in_offsets;
    std::vector<unsigned char> out, in;
    for (int peer = 0; peer < n; ++peer) {
      const auto p = static_cast<std::size_t>(peer);
      const auto m = static_cast<std::size_t>(me);
      out_bytes.push_back(bytes[m][p]);
      out_offsets.push_back(static_cast<std::int64_t>(out.size()));
      for (std::int64_t i = 0; i < bytes[m][p]; ++i) out.push_back(byte(me, peer, i));
      in_bytes.push_back(bytes[p][m]);
      in_offsets.push_back(static_cast<std::int64_t>(in.size()));
      in.resize(in.size() + static_cast<std::size_t>(bytes[p][m]));
    }
    world().all_to_all_v(out.data(), out_bytes, out_offsets, in.data(), in_bytes, in_offsets,
                         *stream);
    device().synchronize(*stream);
    for (int peer = 0; peer < n; ++peer) {
      const auto p = static_cast<std::size_t>(peer);
      for (std::int64_t i = 0; i < in_bytes[p]; ++i) {
        ASSERT_EQ(in[static_cast<std::size_t>(in_offsets[p] + i)], byte(peer, me, i));
      }
    }
  }
}

TEST(CommunicatorMpi, RandomExchangesOnAllChannelsArrive) {
  const int n = world().size();
  const int me = world().rank();
  for (std::uint64_t round = 0; round < 20; ++round) {
    // Streams of exchanges on several channels, all started before any is waited for.
    struct Sent {
      int from, to;
      std::int64_t bytes;
    };
    Random random(5, round);
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::vector<unsigned char>> buffers;
    std::vector<std::pair<std::size_t, int>> expected;  // buffer, seed of its bytes
    std::vector<std::pair<Channel, std::vector<Message>>> exchanges;
    int seed = 0;
    for (int e = 0; e < 12; ++e) {
      const auto channel = static_cast<Channel>(random.uniform() * 6);
      std::vector<Message> messages;
      for (int k = 0; k < 2 * n; ++k) {
        const Sent s{static_cast<int>(random.uniform() * n), static_cast<int>(random.uniform() * n),
                     static_cast<std::int64_t>(random.uniform() * (k % 3 == 0 ? 200'000 : 100))};
        ++seed;
        if (s.from == me) {
          auto& out = buffers.emplace_back(static_cast<std::size_t>(s.bytes));
          for (std::size_t i = 0; i < out.size(); ++i) {
            out[i] = static_cast<unsigned char>(i * 3 + static_cast<std::size_t>(seed));
          }
          messages.push_back({s.to, true, out.data(), s.bytes});
        }
        if (s.to == me) {
          auto& in = buffers.emplace_back(static_cast<std::size_t>(s.bytes));
          expected.emplace_back(buffers.size() - 1, seed);
          messages.push_back({s.from, false, in.data(), s.bytes});
        }
      }
      exchanges.emplace_back(channel, messages);
    }
    for (const auto& [channel, messages] : exchanges) {
      if (streams.size() < 3) streams.push_back(device().make_stream());
      world().exchange(messages, channel, *streams.back());
    }
    for (auto stream = streams.rbegin(); stream != streams.rend(); ++stream) {
      device().synchronize(**stream);
    }
    for (const auto& [index, of] : expected) {
      const auto& in = buffers[index];
      for (std::size_t i = 0; i < in.size(); ++i) {
        ASSERT_EQ(in[i], static_cast<unsigned char>(i * 3 + static_cast<std::size_t>(of)));
      }
    }
  }
}

TEST(CommunicatorMpi, ChannelsDoNotWaitForOneAnother) {
  if (world().size() < 2) return;
  if (world().rank() > 1) return;
  const int peer = 1 - world().rank();
  std::vector<std::vector<int>> data;
  const auto stream = device().make_stream();
  std::vector<Channel> channels;
  for (int c = 0; c < kChannels; ++c) channels.push_back(static_cast<Channel>(c));
  for (int c = 0; c < kChannels; ++c) data.emplace_back(40'000, world().rank() == 0 ? c : -1);
  // Rank 1 receives in the opposite order, and waits for each before it asks for the next.
  if (world().rank() == 1) std::reverse(channels.begin(), channels.end());
  for (const Channel c : channels) {
    auto& buffer = data[static_cast<std::size_t>(c)];
    const Message m{peer, world().rank() == 0, buffer.data(),
                    static_cast<std::int64_t>(buffer.size() * sizeof(int))};
    world().exchange({&m, 1}, c, *stream);
    if (world().rank() == 1) device().synchronize(*stream);
  }
  device().synchronize(*stream);
  for (int c = 0; c < kChannels; ++c) {
    EXPECT_EQ(data[static_cast<std::size_t>(c)], std::vector<int>(40'000, c));
  }
}

TEST(CommunicatorMpi, ExchangesOfOneStreamAreUnderWayTogether) {
  if (world().size() < 2 || world().rank() > 1) return;
  // Rank 0 asks for an answer before it sends the question: the second must not wait for the first.
  const auto stream = device().make_stream();
  std::vector<double> question(100'000, world().rank() == 0 ? 2.0 : 0.0);
  std::vector<double> answer(100'000, 0.0);
  const auto bytes = static_cast<std::int64_t>(question.size() * sizeof(double));
  const Message asked{1 - world().rank(), world().rank() == 0, question.data(), bytes};
  const Message answered{1 - world().rank(), world().rank() == 1, answer.data(), bytes};
  if (world().rank() == 0) {
    world().exchange({&answered, 1}, Channel::ring, *stream);
    world().exchange({&asked, 1}, Channel::ring, *stream);
    device().synchronize(*stream);
    EXPECT_EQ(answer, std::vector<double>(100'000, 4.0));
  } else {
    world().exchange({&asked, 1}, Channel::ring, *stream);
    device().synchronize(*stream);
    for (std::size_t i = 0; i < answer.size(); ++i) answer[i] = question[i] * 2;
    world().exchange({&answered, 1}, Channel::ring, *stream);
    device().synchronize(*stream);
  }
}

TEST(CommunicatorMpi, AnExchangeOfWhatIsStillArrivingWaitsForIt) {
  // Each rank passes on what it receives, put on the stream without waiting: in stream order the
  // first rank's data reach the last.
  const int me = world().rank();
  const auto stream = device().make_stream();
  std::vector<float> data(300'000, me == 0 ? 9.0F : 0.0F);
  const auto bytes = static_cast<std::int64_t>(data.size() * sizeof(float));
  const Message in{me - 1, false, data.data(), bytes};
  const Message out{me + 1, true, data.data(), bytes};
  if (me > 0) world().exchange({&in, 1}, Channel::activations, *stream);
  if (me + 1 < world().size()) world().exchange({&out, 1}, Channel::activations, *stream);
  device().zero(data.data(), 4, *stream);  // after all that
  EXPECT_EQ(data[0], 0.0F);
  EXPECT_EQ(data.back(), 9.0F);
}

TEST(CommunicatorMpi, CollectivesOfSeveralStreamsMoveOnWhicheverIsWaitedFor) {
  const int n = world().size();
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::vector<float>> data;
  std::vector<std::shared_ptr<Event>> events;
  for (int s = 0; s < 6; ++s) {
    streams.push_back(device().make_stream());
    data.emplace_back(400'000, static_cast<float>(s + world().rank()));
    world().all_reduce(data.back().data(), 400'000, DataType::f32, Reduction::sum, *streams.back());
    events.push_back(device().record(*streams.back()));
  }
  // Every rank waits in another order.
  for (int s = 0; s < 6; ++s) {
    const auto at = static_cast<std::size_t>((s + world().rank()) % 6);
    if (world().rank() % 2 == 0) {
      device().wait(*streams[0], events[at]);
    } else {
      while (!events[at]->done()) std::this_thread::yield();
    }
    EXPECT_GT(events[at]->seconds(), 0);
    const auto sum = static_cast<float>(n * static_cast<int>(at) + n * (n - 1) / 2);
    EXPECT_EQ(data[at], std::vector<float>(400'000, sum));
  }
}

TEST(CommunicatorMpi, TrafficIsWhatARingWouldSend) {
  const std::int64_t n = world().size();
  const auto stream = device().make_stream();
  std::vector<double> a(static_cast<std::size_t>(1000 * n)), b(static_cast<std::size_t>(1000 * n));
  world().reset_traffic();
  EXPECT_EQ(world().traffic().total(), 0);
  world().all_reduce(a.data(), 999, DataType::f32, Reduction::sum, *stream);
  world().all_reduce(a.data(), 1000, DataType::f64, Reduction::max, *stream);
  world().all_gather(a.data(), b.data(), 10, DataType::f64, *stream);
  world().reduce_scatter(a.data(), b.data(), 20, DataType::f32, *stream);
  world().broadcast(a.data(), 77, 0, *stream);
  std::vector<std::int64_t> counts, offsets;
  for (int r = 0; r < world().size(); ++r) {
    counts.push_back(40);
    offsets.push_back(40 * r);
  }
  world().all_to_all_v(a.data(), counts, offsets, b.data(), counts, offsets, *stream);
  const int next = (world().rank() + 1) % world().size();
  const int previous = (world().rank() + world().size() - 1) % world().size();
  const Message ring[] = {{next, true, a.data(), 123}, {previous, false, b.data(), 123}};
  world().exchange(ring, Channel::parameters, *stream);
  device().synchronize(*stream);
  const Traffic& t = world().traffic();
  EXPECT_EQ(t.all_reduce, 2 * 999 * 4 * (n - 1) / n + 2 * 8000 * (n - 1) / n);
  EXPECT_EQ(t.all_gather, 80 * (n - 1));
  EXPECT_EQ(t.reduce_scatter, 80 * (n - 1));
  EXPECT_EQ(t.broadcast, world().rank() == 0 && n > 1 ? 77 : 0);
  EXPECT_EQ(t.all_to_all, 40 * (n - 1));
  EXPECT_EQ(t.point_to_point[static_cast<int>(Channel::parameters)], n > 1 ? 123 : 0);
  EXPECT_EQ(t.point_to_point[static_cast<int>(Channel::ring)], 0);
  EXPECT_EQ(t.total(), t.all_reduce + t.all_gather + t.reduce_scatter + t.broadcast + t.all_to_all +
                           t.point_to_point[3]);
}

TEST(CommunicatorMpi, MessagesLongerThanAPieceArrive) {
  if (world().size() != 2) return;  // 2 × 300 MB are enough
  constexpr std::int64_t bytes = (std::int64_t{1} << 28) + 40'000'001;
  std::vector<unsigned char> data(static_cast<std::size_t>(bytes));
  const auto stream = device().make_stream();
  if (world().rank() == 0) {
    for (std::size_t i = 0; i < data.size(); i += 4093) data[i] = static_cast<unsigned char>(i);
    data.back() = 77;
  }
  const Message m{1 - world().rank(), world().rank() == 0, data.data(), bytes};
  world().exchange({&m, 1}, Channel::other, *stream);
  device().synchronize(*stream);
  for (std::size_t i = 0; i + 1 < data.size(); i += 4093) {
    ASSERT_EQ(data[i], static_cast<unsigned char>(i));
  }
  EXPECT_EQ(data.back(), 77);
}

TEST(CommunicatorMpi, AMessageThatNeverComesEndsInAnErrorAndTheOthersStillArrive) {
  if (world().size() < 2) return;
  const auto stream = device().make_stream();
  const int next = (world().rank() + 1) % world().size();
  std::vector<char> nothing(1000);
  const Message m{next, false, nothing.data(), 1000};
  const double limit = world().timeout_seconds();
  world().set_timeout_seconds(0.2);
  world().exchange({&m, 1}, Channel::gradients, *stream);
  const auto event = device().record(*stream);
  try {
    device().synchronize(*stream);
    ADD_FAILURE() << "nobody sends this";
  } catch (const CommunicationError& e) {
    EXPECT_NE(std::string(e.what()).find("channel gradients"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("rank " + std::to_string(next)), std::string::npos);
  }
  EXPECT_THROW(event->done(), CommunicationError);
  EXPECT_THROW(device().synchronize(*stream), CommunicationError);
  world().set_timeout_seconds(limit);
  check_collectives<float>(world(), 5000);
}

}  // namespace
}  // namespace hydraulis
