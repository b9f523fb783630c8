// Times of the CPU backend's communications on this machine:
//   tests/mpirun.sh RANKS build/release/experiments/bench_communicator
// The median over repeats, started together, of the slowest rank. Bandwidth is what the rank that
// sends most puts on links in that time; ping-pong is half a round trip of the first two ranks.

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/communicator.h"
#include "kernels/cpu/stream.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kSmallestBytes = 8;
constexpr std::int64_t kLargestBytes = 16 << 20;
constexpr std::size_t kLeastRepeats = 5;
constexpr std::size_t kMostRepeats = 200;
constexpr double kSecondsEach = 0.5;

class Bench {
 public:
  explicit Bench(CpuProcess& process)
      : device_(*process.device), world_(*process.world), stream_(device_.make_stream()) {}

  /// One line: an operation of which each run does `halves` of what is counted.
  void show(std::int64_t bytes, const char* name, int halves,
            const std::function<void(Stream&)>& operation) {
    const double seconds = typical_seconds(operation) / halves;
    world_.reset_traffic();
    run(operation);
    const double sent = most(static_cast<double>(world_.traffic().total())) / halves;
    if (world_.rank() == 0) {
      fmt::print("{:12} {:>16} {:14.1f} {:12.3f}\n", bytes, name, seconds * 1e6,
                 sent / seconds * 1e-9);
    }
  }

 private:
  void run(const std::function<void(Stream&)>& operation) {
    operation(*stream_);
    device_.synchronize(*stream_);
  }

  double most(double value) {
    world_.all_reduce(&value, 1, DataType::f64, Reduction::max, *stream_);
    device_.synchronize(*stream_);
    return value;
  }

  double typical_seconds(const std::function<void(Stream&)>& operation) {
    std::vector<double> times;
    double elapsed = 0;
    const double begin = cpu::now_seconds();
    while (times.size() < kLeastRepeats ||
           (elapsed < kSecondsEach && times.size() < kMostRepeats)) {
      world_.barrier();
      const double start = cpu::now_seconds();
      run(operation);
      times.push_back(most(cpu::now_seconds() - start));
      elapsed = most(cpu::now_seconds() - begin);  // all ranks stop together
    }
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }

  Device& device_;
  Communicator& world_;
  std::unique_ptr<Stream> stream_;
};

void run() {
  CpuProcess process = start_cpu_process(1);
  Communicator& world = *process.world;
  const int ranks = world.size();
  const int rank = world.rank();
  if (rank == 0) {
    fmt::print("{:>12} {:>16} {:>14} {:>12}\n", "bytes", "operation", "microseconds", "GB/s");
  }
  Bench bench(process);
  for (std::int64_t bytes = kSmallestBytes; bytes <= kLargestBytes; bytes *= 8) {
    const std::int64_t each = (bytes / 4 + ranks - 1) / ranks;  // as many for every rank
    const std::int64_t count = each * ranks;
    std::vector<float> in(static_cast<std::size_t>(count), 1.0F);
    std::vector<float> out(in.size(), 1.0F);
    if (ranks > 1) {
      bench.show(bytes, "ping-pong", 2, [&](Stream& stream) {
        if (rank > 1) return;
        const Message there{1 - rank, rank == 0, in.data(), bytes};
        const Message back{1 - rank, rank == 1, in.data(), bytes};
        world.exchange({&there, 1}, Channel::other, stream);
        world.exchange({&back, 1}, Channel::other, stream);
      });
    }
    bench.show(bytes, "all-reduce", 1, [&](Stream& stream) {
      world.all_reduce(in.data(), count, DataType::f32, Reduction::max, stream);
    });
    bench.show(bytes, "reduce-scatter", 1, [&](Stream& stream) {
      world.reduce_scatter(in.data(), out.data(), each, DataType::f32, stream);
    });
    bench.show(bytes, "all-gather", 1, [&](Stream& stream) {
      world.all_gather(in.data(), out.data(), each, DataType::f32, stream);
    });
  }
}

}  // namespace
}  // namespace hydraulis

int main() {
  try {
    hydraulis::run();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
