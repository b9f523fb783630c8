#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
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

  for (std::int64_t i = 0; i < count; ++i) {
    T total = 0;
    T greatest = std::numeric_limits<T>::lowest();
    T share = 0;
    for (int r = 0; r < n; ++r) {
      total += value<T>(r, i);
      greatest = std::max(greatest, value<T>(r, i));
      share += value<T>(r, me * count + i);
      ASSERT_EQ(gathered[static_cast<std::size_t>(r * count + i)], value<T>(r, i)) << r << " " << i;
    }
    const auto at = static_cast<std::size_t>(i);
    ASSERT_EQ(sum[at], total) << i;
    ASSERT_EQ(most[at], greatest) << i;
    ASSERT_EQ(scattered[at], share) << i;
    ASSERT_EQ(spread[at], value<T>(root, i)) << i;
  }
}

TEST(CommunicatorMpi, CollectivesAgreeWithPlainSumsAtEverySize) {
  for (const auto count : kCounts) {
    check_collectives<float>(world(), count);
    check_collectives<double>(world(), count);
  }
}

}  // namespace
}  // namespace hydraulis
