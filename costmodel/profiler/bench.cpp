#include "costmodel/profiler/bench.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <ctime>

#include "base/random.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kPatternElements = std::int64_t{1} << 16;

double read_clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// A bf16 number: the upper half of a float.
struct Half {
  Half() = default;
  explicit Half(double value)
      : bits(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >>
                                        16)) {}
  std::uint16_t bits = 0;
};

template <typename T>
std::vector<T> pattern(bool positive) {
  Random random(1);
  std::vector<T> values(kPatternElements);
  for (T& value : values) {
    const double uniform = random.uniform();
    value = static_cast<T>(positive ? uniform : 2 * uniform - 1);
  }
  return values;
}

template <typename T>
void fill_with(const Bench& bench, const DeviceBuffer& buffer, bool positive) {
  static const std::vector<T> kAny = pattern<T>(false);
  static const std::vector<T> kPositive = pattern<T>(true);
  const std::vector<T>& values = positive ? kPositive : kAny;
  const auto block = static_cast<std::int64_t>(values.size() * sizeof(T));
  for (std::int64_t begin = 0; begin < buffer.bytes(); begin += block) {
    bench.device->copy_to_device(static_cast<char*>(buffer.data()) + begin, values.data(),
                                 std::min(block, buffer.bytes() - begin), *bench.stream);
  }
  bench.device->synchronize(*bench.stream);
}

/// The slowest rank's numbers; steady where all are.
Sampled slowest(const Bench& bench, const Sampled& mine) {
  const Timing& time = mine.time;
  const std::vector<double> all =
      gather(bench, {time.median_seconds, time.low_seconds, time.high_seconds, mine.spread,
                     static_cast<double>(mine.outliers), time.steady ? 1.0 : 0.0});
  constexpr std::size_t kFields = 6;
  Sampled result = mine;
  result.time.steady = true;
  std::size_t worst = 0;
  for (std::size_t at = 0; at < all.size(); at += kFields) {
    if (all[at] > all[worst]) worst = at;
    if (all[at + 5] == 0) result.time.steady = false;
  }
  result.time.median_seconds = all[worst];
  result.time.low_seconds = all[worst + 1];
  result.time.high_seconds = all[worst + 2];
  result.spread = all[worst + 3];
  result.outliers = static_cast<int>(all[worst + 4]);
  return result;
}

}  // namespace

double wall_seconds() { return read_clock(CLOCK_MONOTONIC); }

double processor_seconds() { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

std::vector<double> gather(const Bench& bench, const std::vector<double>& mine) {
  if (bench.ranks() == 1) return mine;
  const auto count = static_cast<std::int64_t>(mine.size());
  constexpr std::int64_t kSize = sizeof(double);
  const DeviceBuffer from(*bench.device, count * kSize);
  const DeviceBuffer to(*bench.device, count * kSize * bench.ranks());
  bench.device->copy_to_device(from.data(), mine.data(), count * kSize, *bench.stream);
  bench.world->all_gather(from.data(), to.data(), count, DataType::f64, *bench.stream);
  std::vector<double> all(mine.size() * static_cast<std::size_t>(bench.ranks()));
  bench.device->copy_to_host(all.data(), to.data(), to.bytes(), *bench.stream);
  bench.device->synchronize(*bench.stream);
  return all;
}

std::vector<std::string> gather_texts(const Bench& bench, const std::string& mine) {
  const std::vector<double> sizes = gather(bench, {static_cast<double>(mine.size())});
  const double longest = *std::max_element(sizes.begin(), sizes.end());
  // Ended by a zero, in whole numbers of the gathered type, whose bits are moved as they are.
  std::vector<double> words(static_cast<std::size_t>(longest) / sizeof(double) + 1, 0.0);
  std::memcpy(words.data(), mine.data(), mine.size());
  const std::vector<double> all = gather(bench, words);
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < all.size(); at += words.size()) {
    std::string text(words.size() * sizeof(double), '\0');
    std::memcpy(text.data(), all.data() + at, text.size());
    texts.emplace_back(text.c_str());
  }
  return texts;
}

bool everywhere(const Bench& bench, bool mine) {
  const std::vector<double> all = gather(bench, {mine ? 1.0 : 0.0});
  return std::ranges::all_of(all, [](double one) { return one != 0; });
}

bool as_first_rank(const Bench& bench, bool mine) {
  return gather(bench, {mine ? 1.0 : 0.0}).front() != 0;
}

Sampled sample_run(const Bench& bench, const std::function<double(int times)>& run,
                   const SamplingLimits& limits) {
  Together together;
  together.barrier = [&] { bench.world->barrier(); };
  together.greatest = [&](double mine) {
    const std::vector<double> all = gather(bench, {mine});
    return *std::max_element(all.begin(), all.end());
  };
  return slowest(bench, sample(run, limits, together));
}

Sampled sample_call(const Bench& bench, const std::function<void()>& call,
                    const SamplingLimits& limits) {
  const auto run = [&](int times) {
    const double wall = wall_seconds();
    const double start = bench.clock();
    for (int i = 0; i < times; ++i) call();
    bench.device->synchronize(*bench.stream);
    const double taken = bench.clock() - start;
    if (bench.elapsed != nullptr) {
      bench.elapsed->wall += wall_seconds() - wall;
      bench.elapsed->counted += taken;
    }
    return taken;
  };
  return sample_run(bench, run, limits);
}

void fill(const Bench& bench, const DeviceBuffer& buffer, DataType type, bool positive) {
  switch (type) {
    case DataType::f64:
      return fill_with<double>(bench, buffer, positive);
    case DataType::f32:
      return fill_with<float>(bench, buffer, positive);
    case DataType::bf16:
      return fill_with<Half>(bench, buffer, positive);
  }
}

}  // namespace hydraulis
