#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/tile.h"

// The product of large matrices after Goto and van de Geijn (2008): both operands are copied into
// panels that the register tile reads in order, then tasks of tiles run over the threads. Every
// element is summed in one order whatever the number of threads.
namespace hydraulis::cpu {
namespace {

constexpr int kTileVectors = 2;
constexpr int kTileRows = std::min(14, tile_rows(kTileVectors));
template <typename T>
constexpr int kTileColumns = kTileVectors* kLanes<T>;
/// Depth for which a panel of b stays in the first-level cache.
constexpr std::int64_t kDepth = 256;
/// Tiles of a task: its panels of a stay in the second-level cache.
constexpr std::int64_t kTaskRowPanels = 12;
constexpr std::int64_t kTaskColumnPanels = 16;
/// Elements of a packed operand: both together stay in a last-level cache of usual size.
constexpr std::int64_t kPackedElements = kCpuProductElements;
/// Multiplications below which starting threads costs more than they save.
constexpr double kSerialWork = 2e5;

std::int64_t panels_of(std::int64_t count, std::int64_t width) {
  return (count + width - 1) / width;
}

/// op(x) as seen by a product: element (i, k) at data[i·along + k·depth_step].
template <typename T>
struct Operand {
  const T* data;
  std::int64_t along;
  std::int64_t depth_step;
};

/// Panels that are packed together: where a row of x runs along them, more of it is read at once.
constexpr std::int64_t kPackedTogether = 8;

/// Panels [begin, end): to[(panel·depth + k)·width + i] = x(panel·width + i, k) with zeros beyond
/// `count`.
template <typename T, int width>
void pack(const Operand<T>& x, Range panels, std::int64_t count, std::int64_t depth, T* to) {
  const auto filled = [&](std::int64_t panel) {
    return static_cast<int>(std::min<std::int64_t>(width, count - panel * width));
  };
  if (x.along == 1) {
    for (std::int64_t k = 0; k < depth; ++k) {
      const T* row = x.data + k * x.depth_step;
      for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
        T* out = to + (panel * depth + k) * width;
        const T* from = row + panel * width;
        if (const int n = filled(panel); n == width) {
          std::memcpy(out, from, width * sizeof(T));
        } else {
          std::copy(from, from + n, out);
          std::fill(out + n, out + width, T(0));
        }
      }
    }
    return;
  }
  for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const T* from = x.data + panel * width * x.along;
    T* out = to + panel * depth * width;
    const int rows = filled(panel);
#pragma GCC unroll 8
    for (int i = 0; i < width; i += kLanes<T>) {
      const int lanes = std::min(kLanes<T>, width - i);
      transpose_strip(from + i * x.along, x.along, std::clamp(rows - i, 0, lanes), depth, T(1),
                      out + i, width, lanes);
    }
  }
}

template <typename T>
struct Scaling {
  T alpha;
  T beta;
};

/// The tile at c of `rows` × `columns` elements: c = alpha·(product over one depth block) + beta·c.
template <typename T>
void tile(const T* a, const T* b, std::int64_t depth, Scaling<T> scaling, T* c,
          std::int64_t c_stride, std::int64_t rows, std::int64_t columns) {
  constexpr int lanes = kLanes<T>;
  // The lines of c arrive while the sums are made.
  for (std::int64_t i = 0; i < rows; ++i) {
    for (int v = 0; v < kTileVectors; ++v) __builtin_prefetch(c + i * c_stride + v * lanes, 1);
  }
  Vector<T> sums[kTileRows][kTileVectors];
  multiply_tile<T, kTileRows, kTileVectors>(a, 1, kTileRows, b, kTileColumns<T>, depth, sums);
  if (rows == kTileRows && columns == kTileColumns<T>) {
    if (scaling.beta == T(0)) {
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
        for (int v = 0; v < kTileVectors; ++v) {
          store(c + i * c_stride + v * lanes, scaling.alpha * sums[i][v]);
        }
      }
    } else {
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
        for (int v = 0; v < kTileVectors; ++v) {
          T* to = c + i * c_stride + v * lanes;
          store(to, scaling.alpha * sums[i][v] + scaling.beta * load(to));
        }
      }
    }
    return;
  }
  T edge[kTileRows * kTileColumns<T>];
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      store(edge + i * kTileColumns<T> + v * lanes, scaling.alpha * sums[i][v]);
    }
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    T* to = c + i * c_stride;
    const T* from = edge + i * kTileColumns<T>;
    for (std::int64_t j = 0; j < columns; ++j) {
      to[j] = scaling.beta == T(0) ? from[j] : from[j] + scaling.beta * to[j];
    }
  }
}

template <typename T>
void scale(View<T> c, T beta) {
  for (std::int64_t i = 0; i < c.rows; ++i) {
    for (std::int64_t j = 0; j < c.columns; ++j) {
      c.row(i)[j] = beta == T(0) ? T(0) : beta * c.row(i)[j];
    }
  }
}

}  // namespace

template <typename T>
void gemm(Device& device, bool transpose_a, bool transpose_b, T alpha, View<const T> a,
          View<const T> b, T beta, View<T> c) {
  const std::int64_t depth = transpose_a ? a.rows : a.columns;
  if (c.rows == 0 || c.columns == 0) return;
  if (depth == 0 || alpha == T(0)) return scale(c, beta);
  const Operand<T> left{a.data, transpose_a ? 1 : a.stride, transpose_a ? a.stride : 1};
  const Operand<T> right{b.data, transpose_b ? b.stride : 1, transpose_b ? 1 : b.stride};
  constexpr std::int64_t height = kTileRows;
  constexpr std::int64_t width = kTileColumns<T>;

  const double work =
      static_cast<double>(c.rows) * static_cast<double>(c.columns) * static_cast<double>(depth);
  const int threads = work < kSerialWork ? 1 : device.threads();
  // The outermost blocks of c: their packed operands stay in cache.
  const std::int64_t block_panels =
      std::max<std::int64_t>(kTaskRowPanels, kPackedElements / (depth * height));
  const std::int64_t row_panels = std::min(block_panels, panels_of(c.rows, height));
  const std::int64_t column_panels =
      std::min(std::max<std::int64_t>(kTaskColumnPanels, kPackedElements / (depth * width)),
               panels_of(c.columns, width));
  const DeviceBuffer workspace(device, (row_panels * height + column_panels * width) * depth *
                                           static_cast<std::int64_t>(sizeof(T)));
  T* const packed_b = static_cast<T*>(workspace.data());
  T* const packed_a = packed_b + column_panels * width * depth;

  for (std::int64_t column = 0; column < c.columns; column += column_panels * width) {
    const std::int64_t columns_here = std::min(column_panels * width, c.columns - column);
    const std::int64_t panels_b = panels_of(columns_here, width);
    for (std::int64_t row = 0; row < c.rows; row += row_panels * height) {
      const std::int64_t rows_here = std::min(row_panels * height, c.rows - row);
      const std::int64_t panels_a = panels_of(rows_here, height);
      const std::int64_t packs_a = panels_of(panels_a, kPackedTogether);
      const std::int64_t packs_b = row == 0 ? panels_of(panels_b, kPackedTogether) : 0;
      parallel(threads, packs_b + packs_a, [&](std::int64_t part, int) {
        if (part < packs_b) {
          pack<T, width>({right.data + column * right.along, right.along, right.depth_step},
                         part_of(panels_b, packs_b, part), columns_here, depth, packed_b);
        } else {
          pack<T, height>({left.data + row * left.along, left.along, left.depth_step},
                          part_of(panels_a, packs_a, part - packs_b), rows_here, depth, packed_a);
        }
      });
      const std::int64_t task_rows = panels_of(panels_a, kTaskRowPanels);
      const std::int64_t task_columns = panels_of(panels_b, kTaskColumnPanels);
      parallel(threads, task_rows * task_columns, [&](std::int64_t task, int) {
        const Range panels_i = part_of(panels_a, task_rows, task / task_columns);
        const Range panels_j = part_of(panels_b, task_columns, task % task_columns);
        for (std::int64_t k = 0; k < depth; k += kDepth) {
          const std::int64_t depth_here = std::min(kDepth, depth - k);
          const Scaling<T> scaling{alpha, k == 0 ? beta : T(1)};
          for (std::int64_t j = panels_j.begin; j < panels_j.end; ++j) {
            for (std::int64_t i = panels_i.begin; i < panels_i.end; ++i) {
              tile(packed_a + (i * depth + k) * height, packed_b + (j * depth + k) * width,
                   depth_here, scaling, c.row(row + i * height) + column + j * width, c.stride,
                   std::min(height, rows_here - i * height),
                   std::min(width, columns_here - j * width));
            }
          }
        }
      });
    }
  }
}

template void gemm<float>(Device&, bool, bool, float, View<const float>, View<const float>, float,
                          View<float>);
template void gemm<double>(Device&, bool, bool, double, View<const double>, View<const double>,
                           double, View<double>);

}  // namespace hydraulis::cpu
