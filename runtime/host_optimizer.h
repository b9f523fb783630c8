#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/tensor.h"

namespace hydraulis {

/// One row of numbers in page-locked host memory.
struct HostTensor {
  HostMemory memory;
  Matrix matrix;

  HostTensor() = default;
  HostTensor(const Backend& backend, DataType type, std::int64_t elements);
};

/// A rank's master parameters and moments in host memory, updated by the host's processors
/// (costmodel/host_states.h). Works in buckets: while one is updated, the next one's gradients come
/// down and the last one's rounded parameters go up. An update gives the same numbers whatever the
/// buckets, those of the CPU backend's kernels.
class HostOptimizer {
 public:
  /// All zero. `elements`: of the shard; `bucket`: elements of a bucket.
  HostOptimizer(const Backend& backend, std::int64_t elements, std::int64_t bucket);

  // In host memory, f32.
  Matrix parameters() const { return parameters_.matrix; }
  Matrix first_moments() const { return first_.matrix; }
  Matrix second_moments() const { return second_.matrix; }
  bool holds(const void* address) const;

  /// Gradients and rounded parameters are in device memory; what is on `compute` comes before. The
  /// gradients are free again when the call returns, wait_for_parameters() knows of the rest.
  void adamw(const OptimizerStep& settings, std::span<const OptimizerStretch> stretches,
             ConstMatrix gradients, Matrix rounded, Stream& compute);
  /// LAMB, whose `scales` turn the squared norms of parameters and updates by stretch into what
  /// each stretch's update is multiplied by.
  using LambScales = std::function<std::vector<double>(std::span<const double> of_parameters,
                                                       std::span<const double> of_updates)>;
  void lamb(const OptimizerStep& settings, std::span<const OptimizerStretch> stretches,
            ConstMatrix gradients, Matrix rounded, Stream& compute, const LambScales& scales);

  /// The masters were written: rounded parameters follow before their next use.
  void parameters_changed() { changed_ = true; }
  /// Later work on `stream` sees the masters rounded.
  void wait_for_parameters(Matrix rounded, Stream& stream);

 private:
  struct Bucket {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    Matrix gradients;  ///< in host memory
  };
  std::int64_t buckets() const { return (parameters_.matrix.columns + bucket_ - 1) / bucket_; }
  Bucket bucket(std::int64_t number) const;
  /// Elements of the bucket in a matrix of the shard's.
  static Matrix part(const Matrix& of, const Bucket& bucket);
  /// Calls `update` on each bucket when its gradients have come.
  void over_buckets(ConstMatrix gradients, Stream& compute,
                    const std::function<void(const Bucket&)>& update);
  /// Rounds a bucket's parameters and sends them up.
  void send(const Bucket& bucket, Matrix rounded);

  Backend backend_;
  std::int64_t bucket_;
  HostTensor parameters_;
  HostTensor first_;
  HostTensor second_;
  std::array<HostTensor, 2> down_;  ///< gradients of two buckets in turn
  std::array<HostTensor, 2> up_;    ///< rounded parameters
  std::array<std::shared_ptr<Event>, 2> sent_;
  std::unique_ptr<Stream> down_stream_;
  std::unique_ptr<Stream> up_stream_;
  bool changed_ = false;
};

}  // namespace hydraulis
