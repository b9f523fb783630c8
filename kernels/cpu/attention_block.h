#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile.h"

// What the forward and the backward of attention share. Scores are kept transposed, [key][query],
// so that the lanes of a vector are queries: the softmax over keys needs no sums across lanes, keys
// and values are read as they lie in memory, and only queries are transposed, once a block.
namespace hydraulis::cpu {

inline constexpr int kQueryVectors = 4;
template <typename T>
inline constexpr int kQueryBlock = kQueryVectors* kLanes<T>;
inline constexpr std::int64_t kKeyBlock = 64;

/// Rows after which a task ends: what all heads read of them stays in the second-level cache until
/// the last head's task comes.
inline constexpr std::int64_t kTaskRows = 128;

/// A block of queries of a segment and a block of its keys, numbered from the segment's start.
struct BlockPair {
  std::int64_t query = 0;  ///< first
  std::int64_t queries = 0;
  std::int64_t key = 0;  ///< first
  std::int64_t keys = 0;
  bool causal = false;

  /// Whether some query of the block does not see some key of it.
  bool masked() const { return causal && key + keys - 1 > query; }
  /// Leading keys of the block that the vector of queries from `lane` sees at least in part.
  std::int64_t keys_seen(std::int64_t lane, std::int64_t lanes) const {
    return causal ? std::clamp<std::int64_t>(query + lane + lanes - key, 0, keys) : keys;
  }
  /// First vector of queries that sees key `j` of the block at least in part.
  int first_vector(std::int64_t j, int lanes) const {
    return causal ? static_cast<int>(std::max<std::int64_t>(0, key + j - query) / lanes) : 0;
  }
};

/// Vectors that hold the queries of a block.
template <typename T>
int query_vectors(const BlockPair& pair) {
  return static_cast<int>((pair.queries + kLanes<T> - 1) / kLanes<T>);
}

/// visit(first key, count, first vector of queries that sees them) for the keys of a block that
/// are seen, in groups of one first vector.
template <typename T, typename Visit>
void for_each_key_group(const BlockPair& pair, Visit visit) {
  if (!pair.masked()) return visit(std::int64_t{0}, pair.keys, 0);
  for (std::int64_t j = 0; j < pair.keys;) {
    const int first = pair.first_vector(j, kLanes<T>);
    if (first >= query_vectors<T>(pair)) return;
    const std::int64_t next_vector = pair.query + (first + 1) * kLanes<T> - pair.key;
    const std::int64_t end = std::min(pair.keys, next_vector);
    visit(j, end - j, first);
    j = end;
  }
}

/// visit(first vector of queries, count of vectors, leading keys that they see).
template <typename T, typename Visit>
void for_each_query_group(const BlockPair& pair, Visit visit) {
  const int vectors = query_vectors<T>(pair);
  if (!pair.masked()) return visit(0, vectors, pair.keys);
  for (int v = 0; v < vectors; ++v) visit(v, 1, pair.keys_seen(v * kLanes<T>, kLanes<T>));
}

/// to[c][lane] = factor·from[lane][c] for a block of queries, zeros in lanes beyond `count`.
template <typename T>
void transpose_block(const T* from, std::int64_t stride, std::int64_t count, std::int64_t columns,
                     T factor, T* to) {
  constexpr std::int64_t width = kQueryBlock<T>;
  for (std::int64_t i = 0; i < count; i += kLanes<T>) {
    const auto rows = static_cast<int>(std::min<std::int64_t>(kLanes<T>, count - i));
    transpose_strip(from + i * stride, stride, rows, columns, factor, to + i, width, kLanes<T>);
  }
}

/// use(query, column, vector of the row from that column, lanes) for every row of a block that is
/// kept transposed, block[c][query lane].
template <typename T, typename Use>
void for_each_transposed(const T* block, std::int64_t queries, std::int64_t columns, Use use) {
  constexpr std::int64_t lanes = kLanes<T>;
  for (std::int64_t i = 0; i < queries; i += lanes) {
    const std::int64_t rows = std::min(lanes, queries - i);
    for_each_vector<T>(columns, [&](std::int64_t c, auto part) {
      Vector<T> square[lanes] = {};
      for (std::int64_t j = 0; j < std::min(lanes, columns - c); ++j) {
        square[j] = load(block + (c + j) * kQueryBlock<T> + i);
      }
      transpose<T>(square);
      for (std::int64_t r = 0; r < rows; ++r) use(i + r, c, square[r], part);
    });
  }
}

/// scores[key][query lane] = Σ_c rows[key][c]·transposed[c][lane], only vectors of queries that see
/// a key of their tile.
template <typename T>
void block_scores(const BlockPair& pair, const T* rows, std::int64_t columns, const T* transposed,
                  T* scores) {
  constexpr std::int64_t width = kQueryBlock<T>;
  const int vectors = query_vectors<T>(pair);
  for_each_key_group<T>(pair, [&](std::int64_t j, std::int64_t count, int first) {
    small_product(count, vectors - first, rows + j * columns, columns, std::int64_t{1},
                  transposed + first * kLanes<T>, width, columns,
                  [&](std::int64_t i, int v, Vector<T> sum) {
                    store(scores + (j + i) * width + (first + v) * kLanes<T>, sum);
                  });
  });
}

/// A copy of `count` rows without gaps: rows a power of two apart would fall into the same few
/// lines of the cache.
template <typename T>
void copy_rows(const T* from, std::int64_t stride, std::int64_t count, std::int64_t columns,
               T* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T* row = from + i * stride;
    T* out = to + i * columns;
    for_each_vector<T>(
        columns, [&](std::int64_t c, auto lanes) { store(out + c, load(row + c, lanes), lanes); });
  }
}

/// Lane numbers 0, 1, 2 …
template <typename T>
HYDRAULIS_INLINE Vector<T> lane_numbers() {
  Vector<T> x{};
  for (int i = 0; i < kLanes<T>; ++i) x[i] = static_cast<T>(i);
  return x;
}

}  // namespace hydraulis::cpu
