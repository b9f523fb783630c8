#include "runtime/host_optimizer.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "kernels/cpu/stream.h"

namespace hydraulis {
namespace {

/// The parts of stretches that lie in [begin, begin + count), numbered from `begin`.
std::vector<OptimizerStretch> clipped(std::span<const OptimizerStretch> stretches,
                                      std::int64_t begin, std::int64_t count) {
  std::vector<OptimizerStretch> inside;
  for (const OptimizerStretch& s : stretches) {
    const std::int64_t first = std::max(s.begin, begin);
    const std::int64_t end = std::min(s.begin + s.count, begin + count);
    if (first < end) inside.push_back({first - begin, end - first, s.decays});
  }
  return inside;
}

}  // namespace

HostTensor::HostTensor(const Backend& backend, DataType type, std::int64_t elements)
    : memory(backend.device->allocate_host(elements * size_of(type)), {backend.device}),
      matrix{memory.get(), type, 1, elements, elements} {}

HostOptimizer::HostOptimizer(const Backend& backend, std::int64_t elements, std::int64_t bucket)
    : backend_(backend),
      bucket_(std::clamp<std::int64_t>(elements, 1, bucket)),
      parameters_(backend, DataType::f32, elements),
      first_(backend, DataType::f32, elements),
      second_(backend, DataType::f32, elements),
      down_stream_(backend.device->make_stream()),
      up_stream_(backend.device->make_stream()) {
  if (backend.host_compute == nullptr || backend.type != DataType::bf16) {
    throw std::logic_error("optimizer states in host memory: for a device that trains in bf16");
  }
  for (const HostTensor* tensor : {&parameters_, &first_, &second_}) {
    if (elements > 0) std::memset(tensor->matrix.data, 0, elements * sizeof(float));
  }
  for (HostTensor& slot : down_) slot = HostTensor(backend, DataType::f32, bucket_);
  for (HostTensor& slot : up_) slot = HostTensor(backend, DataType::bf16, bucket_);
}

bool HostOptimizer::holds(const void* address) const {
  const auto in = [&](const HostTensor& tensor) {
    const auto* begin = static_cast<const char*>(tensor.matrix.data);
    return address >= begin && address < begin + tensor.matrix.elements() * 4;
  };
  return in(parameters_) || in(first_) || in(second_);
}

HostOptimizer::Bucket HostOptimizer::bucket(std::int64_t number) const {
  const std::int64_t begin = number * bucket_;
  const std::int64_t count = std::min(bucket_, parameters_.matrix.columns - begin);
  return {begin, count, down_[number % 2].matrix.column_range(0, count)};
}

Matrix HostOptimizer::part(const Matrix& of, const Bucket& bucket) {
  return of.column_range(bucket.begin, bucket.count);
}

void HostOptimizer::over_buckets(ConstMatrix gradients, Stream& compute,
                                 const std::function<void(const Bucket&)>& update) {
  const auto start = [&](std::int64_t number) {
    const Bucket next = bucket(number);
    backend_.device->copy_to_host(next.gradients.data,
                                  gradients.column_range(next.begin, next.count).data,
                                  next.count * 4, *down_stream_);
  };
  // The first copy up starts when gradients have come down, so it too comes after what is on
  // `compute`: stages have taken the parameters of before.
  backend_.device->wait(*down_stream_, backend_.device->record(compute));
  const std::int64_t all = buckets();
  if (all > 0) start(0);
  for (std::int64_t number = 0; number < all; ++number) {
    backend_.device->synchronize(*down_stream_);
    // The slot of the next is that of the last, which has been worked up.
    if (number + 1 < all) start(number + 1);
    update(bucket(number));
  }
}

void HostOptimizer::send(const Bucket& bucket, Matrix rounded) {
  const std::int64_t slot = bucket.begin / bucket_ % 2;
  while (sent_[slot] != nullptr && !sent_[slot]->done()) sched_yield();
  const Matrix here = up_[slot].matrix.column_range(0, bucket.count);
  cpu::CpuStream host;
  backend_.host_compute->convert(part(parameters_.matrix, bucket), here, host);
  backend_.device->copy_to_device(part(rounded, bucket).data, here.data,
                                  bucket.count * size_of(here.type), *up_stream_);
  sent_[slot] = backend_.device->record(*up_stream_);
}

void HostOptimizer::adamw(const OptimizerStep& settings,
                          std::span<const OptimizerStretch> stretches, ConstMatrix gradients,
                          Matrix rounded, Stream& compute) {
  cpu::CpuStream host;
  over_buckets(gradients, compute, [&](const Bucket& b) {
    backend_.host_compute->adamw(settings, clipped(stretches, b.begin, b.count), b.gradients,
                                 part(parameters_.matrix, b), part(first_.matrix, b),
                                 part(second_.matrix, b), host);
    send(b, rounded);
  });
  changed_ = false;
}

void HostOptimizer::lamb(const OptimizerStep& settings, std::span<const OptimizerStretch> stretches,
                         ConstMatrix gradients, Matrix rounded, Stream& compute,
                         const LambScales& scales) {
  cpu::CpuStream host;
  Compute& kernels = *backend_.host_compute;
  std::vector<float> numbers(parameters_.matrix.columns);
  const auto elements = static_cast<std::int64_t>(numbers.size());
  const Matrix updates{numbers.data(), DataType::f32, 1, elements, elements};
  over_buckets(gradients, compute, [&](const Bucket& b) {
    kernels.lamb_direction(settings, clipped(stretches, b.begin, b.count), b.gradients,
                           part(parameters_.matrix, b), part(first_.matrix, b),
                           part(second_.matrix, b), part(updates, b), host);
  });
  std::vector<double> of_parameters(stretches.size());
  std::vector<double> of_updates(stretches.size());
  kernels.sum_squares(stretches, parameters_.matrix, of_parameters, host);
  kernels.sum_squares(stretches, updates, of_updates, host);
  kernels.add_scaled(stretches, scales(of_parameters, of_updates), updates, parameters_.matrix,
                     host);
  for (std::int64_t number = 0; number < buckets(); ++number) send(bucket(number), rounded);
  changed_ = false;
}

void HostOptimizer::wait_for_parameters(Matrix rounded, Stream& stream) {
  if (changed_) {
    backend_.device->wait(*up_stream_, backend_.device->record(stream));
    for (std::int64_t number = 0; number < buckets(); ++number) send(bucket(number), rounded);
    changed_ = false;
  }
  backend_.device->wait(stream, backend_.device->record(*up_stream_));
}

}  // namespace hydraulis
