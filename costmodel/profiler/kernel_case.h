#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "costmodel/operator_profile.h"
#include "costmodel/profiler/bench.h"

namespace hydraulis {

/// What one call of a kernel works on.
struct KernelPoint {
  KernelShape shape;
  std::int64_t tokens = 0;  ///< rows
  std::int64_t length = 0;  ///< of each sequence; attention only, at most `tokens`
};

/// Arguments of a kernel, in as many sets as are asked for, used in turn: a call then finds its
/// arguments in caches no more than training's calls do.
class KernelCase {
 public:
  /// Throws InfeasibleError when the arguments do not fit into device memory.
  KernelCase(const Bench& bench, const KernelPoint& point, int sets);
  /// Puts the next call on the bench's stream.
  void launch() { calls_[next_++ % calls_.size()](); }
  /// Device memory that a call takes beyond its arguments, bytes.
  std::int64_t allocated_bytes();

 private:
  Matrix make(DataType type, std::int64_t rows, std::int64_t columns, bool positive);
  /// Of the bench's type.
  Matrix matrix(std::int64_t rows, std::int64_t columns, bool positive = false);
  /// Of its wide type: statistics, gradients of weights, the optimizer's numbers.
  Matrix wide(std::int64_t rows, std::int64_t columns, bool positive = false);
  std::function<void()> make_call(const KernelPoint& point);
  std::function<void()> make_gemm(const KernelPoint& point);
  std::function<void()> make_attention(const KernelPoint& point);
  std::function<void()> make_cross_entropy(const KernelPoint& point);
  std::function<void()> make_row_wise(const KernelPoint& point);

  Bench bench_;
  std::vector<DeviceBuffer> buffers_;
  std::vector<std::function<void()>> calls_;
  std::size_t next_ = 0;
};

}  // namespace hydraulis
