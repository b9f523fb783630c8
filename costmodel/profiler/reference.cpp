#include "costmodel/profiler/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "costmodel/kernel_work.h"

namespace hydraulis {
namespace {

/// Above the best of the best repeats, for shapes that suit the device better than those tried.
constexpr double kMargin = 1.5;
constexpr double kWindowSeconds = 0.2;
constexpr double kSteady = 0.02;
constexpr double kLookSeconds = 0.03;
constexpr double kShortCall = 2e-3;
constexpr std::int64_t kLeastSquare = 256;
constexpr std::int64_t kMostSquare = 8192;
constexpr std::int64_t kCopyBytes = std::int64_t{64} << 20;

KernelPoint square(std::int64_t size) {
  KernelPoint point;
  point.shape.kernel = Kernel::gemm_forward;
  point.shape.inputs = size;
  point.shape.outputs = size;
  point.tokens = size;
  return point;
}

double product_flops(const KernelPoint& point) {
  return kernel_work(point.shape, point.tokens, 0, 1).flops;
}

/// Best seconds of one call, over repeats that take this long in all.
double best_seconds(const Bench& bench, const std::function<void()>& call, double seconds) {
  double best = std::numeric_limits<double>::infinity();
  const double end = bench.clock() + seconds;
  double now = 0;
  do {
    constexpr int kTimes = 4;
    const double start = bench.clock();
    for (int i = 0; i < kTimes; ++i) call();
    bench.device->synchronize(*bench.stream);
    now = bench.clock();
    best = std::min(best, (now - start) / kTimes);
  } while (now < end);
  return best;
}

}  // namespace

Reference::Reference(const Bench& bench) : bench_(bench) {}

/// The first size whose product takes more than a moment, so that starting it does not show.
void Reference::choose_size() {
  for (std::int64_t size = kLeastSquare;; size *= 2) {
    point_ = square(size);
    product_ = std::make_unique<KernelCase>(bench_, point_, 1);
    const double seconds = best_seconds(
        bench_, [&] { product_->launch(); }, kLookSeconds);
    if (everywhere(bench_, seconds > kShortCall || size == kMostSquare)) return;
  }
}

/// Mean seconds of a product over a stretch of time.
double Reference::product_seconds(double seconds) {
  const double start = bench_.clock();
  int times = 0;
  double taken = 0;
  do {
    product_->launch();
    bench_.device->synchronize(*bench_.stream);
    ++times;
    taken = bench_.clock() - start;
  } while (taken < seconds);
  return taken / times;
}

Ceilings Reference::warm_up(double most_seconds) {
  choose_size();
  const double start = wall_seconds();
  double before = product_seconds(kWindowSeconds);
  for (;;) {
    const double after = product_seconds(kWindowSeconds);
    const bool steady = std::abs(after - before) <= kSteady * before;
    before = after;
    if (everywhere(bench_, steady || wall_seconds() - start > most_seconds)) break;
  }
  Ceilings mine;
  for (std::int64_t size = kLeastSquare / 2; size <= point_.tokens; size *= 2) {
    const KernelPoint point = square(size);
    KernelCase product(bench_, point, 1);
    const double best = best_seconds(
        bench_, [&] { product.launch(); }, kWindowSeconds / 2);
    mine.flops = std::max(mine.flops, kMargin * product_flops(point) / best);
  }
  for (std::int64_t bytes = 4096; bytes <= kCopyBytes; bytes *= 4) {
    const DeviceBuffer from(*bench_.device, bytes);
    const DeviceBuffer to(*bench_.device, bytes);
    fill(bench_, from, bench_.type);
    const auto copy = [&] { bench_.device->copy(to.data(), from.data(), bytes, *bench_.stream); };
    const double best = best_seconds(bench_, copy, kLookSeconds);
    mine.bytes_per_second =
        std::max(mine.bytes_per_second, kMargin * 2 * static_cast<double>(bytes) / best);
  }
  const std::vector<double> all = gather(bench_, {mine.flops, mine.bytes_per_second});
  for (std::size_t at = 0; at < all.size(); at += 2) {
    mine.flops = std::max(mine.flops, all[at]);
    mine.bytes_per_second = std::max(mine.bytes_per_second, all[at + 1]);
  }
  return mine;
}

std::vector<double> Reference::rates() {
  bench_.world->barrier();
  return gather(bench_, {product_flops(point_) / product_seconds(kWindowSeconds / 2)});
}

std::vector<double> Reference::copy_rates() {
  const DeviceBuffer from(*bench_.device, kCopyBytes);
  const DeviceBuffer to(*bench_.device, kCopyBytes);
  fill(bench_, from, bench_.type);
  bench_.world->barrier();
  const double best = best_seconds(
      bench_, [&] { bench_.device->copy(to.data(), from.data(), kCopyBytes, *bench_.stream); },
      2 * kWindowSeconds);
  return gather(bench_, {2 * static_cast<double>(kCopyBytes) / best});
}

}  // namespace hydraulis
