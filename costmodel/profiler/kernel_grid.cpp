#include "costmodel/profiler/kernel_grid.h"

#include <algorithm>

#include "costmodel/compose_operations.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kLeastTokens = 16;
constexpr std::int64_t kLeastLength = 32;
/// Optimizer kernels: rows of this many parameters.
constexpr std::int64_t kParameterWidth = 1024;
constexpr std::int64_t kMostParameterRows = std::int64_t{1} << 14;

/// Geometric from `least` to exactly `most`.
std::vector<std::int64_t> steps(std::int64_t least, std::int64_t most, std::int64_t factor) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = most; size > least; size /= factor) sizes.push_back(size);
  sizes.push_back(std::min(least, most));
  std::reverse(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

class Grid {
 public:
  void add(const KernelPoint& point) {
    const bool known = std::ranges::any_of(points_, [&](const KernelPoint& other) {
      return other.shape == point.shape && other.tokens == point.tokens &&
             other.length == point.length;
    });
    if (!known) points_.push_back(point);
  }

  void add_model(const KernelGridSettings& settings, const ModelSpec& model, bool coarse) {
    for (const int tp : settings.tensor_parallel) {
      if (!tensor_parallel_problem(model, tp).empty()) continue;
      for (const KernelShape& shape : kernel_shapes(model, tp)) {
        is_attention(shape.kernel) ? add_attention(shape, settings.max_tokens, coarse)
                                   : add_rows(shape, settings.max_tokens, coarse);
      }
    }
    const std::int64_t parameters = parameter_count(model) / settings.ranks;
    const std::int64_t rows =
        std::clamp<std::int64_t>(parameters / kParameterWidth, 16, kMostParameterRows);
    for (const Kernel kernel : {Kernel::sum_squares, Kernel::adamw}) {
      KernelShape shape;
      shape.kernel = kernel;
      shape.width = kParameterWidth;
      for (const std::int64_t tokens : steps(1, rows, coarse ? 16 : 4)) add({shape, tokens, 0});
    }
  }

  std::vector<KernelPoint> take() { return std::move(points_); }

 private:
  void add_rows(const KernelShape& shape, std::int64_t max_tokens, bool coarse) {
    for (const std::int64_t tokens : steps(kLeastTokens, max_tokens, coarse ? 4 : 2)) {
      add({shape, tokens, 0});
    }
  }
  /// Single sequences, and packs of them.
  void add_attention(const KernelShape& shape, std::int64_t max_tokens, bool coarse) {
    for (const std::int64_t length : steps(kLeastLength, max_tokens, coarse ? 4 : 2)) {
      add({shape, length, length});
      add({shape, max_tokens, length});
      if (!coarse && 4 * length < max_tokens) add({shape, 4 * length, length});
    }
  }

  std::vector<KernelPoint> points_;
};

}  // namespace

std::vector<KernelPoint> kernel_grid(const KernelGridSettings& settings) {
  Grid grid;
  for (const ModelSpec& model : settings.models) grid.add_model(settings, model, true);
  for (const ModelSpec& model : settings.models) grid.add_model(settings, model, false);
  return grid.take();
}

}  // namespace hydraulis
