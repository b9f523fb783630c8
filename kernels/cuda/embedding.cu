#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "kernels/cuda/embedding.h"
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/numbers.cuh"

namespace hydraulis::cuda {

namespace {

/// Tokens of a row that one thread adds up one after another.
constexpr std::int64_t kPieceTokens = 32;

template <typename T>
struct Gather {
  const std::int32_t* ids;
  std::int64_t first_row, table_rows;
  View<const T> table;
  View<T> out;
  template <int kCount>
  __device__ void at(std::int64_t t, std::int64_t column) const {
    const std::int64_t row = ids[t] - first_row;
    Floats<kCount> values = {};
    if (row >= 0 && row < table_rows) values = load<kCount>(table.row(row) + column);
    store(out.row(t) + column, values);
  }
};

template <typename T>
struct SumPieces {
  const std::int64_t* tokens;
  const EmbeddingPlan::Piece* pieces;
  View<const T> dout;
  View<float> sums;
  template <int kCount>
  __device__ void at(std::int64_t piece, std::int64_t column) const {
    Floats<kCount> sum = {};
    for (std::int64_t i = pieces[piece].begin; i < pieces[piece].end; ++i) {
      const Floats<kCount> values = load<kCount>(dout.row(tokens[i]) + column);
#pragma unroll
      for (int u = 0; u < kCount; ++u) sum.value[u] += values.value[u];
    }
    store(sums.row(piece) + column, sum);
  }
};

template <typename G>
struct AddPieces {
  const EmbeddingPlan::Row* rows;
  View<const float> sums;
  View<G> dtable;
  template <int kCount>
  __device__ void at(std::int64_t i, std::int64_t column) const {
    G* to = dtable.row(rows[i].row) + column;
    Floats<kCount> sum = load<kCount>(to);
    for (std::int64_t piece = rows[i].first_piece; piece < rows[i].end_piece; ++piece) {
      const Floats<kCount> values = load<kCount>(sums.row(piece) + column);
#pragma unroll
      for (int u = 0; u < kCount; ++u) sum.value[u] += values.value[u];
    }
    store(to, sum);
  }
};

}  // namespace

EmbeddingPlan plan_embedding(std::span<const std::int32_t> ids, std::int64_t first_row,
                             std::int64_t rows) {
  EmbeddingPlan plan;
  const auto row_of = [&](std::int64_t t) {
    return std::int64_t{ids[static_cast<std::size_t>(t)]} - first_row;
  };
  for (std::int64_t t = 0; t < static_cast<std::int64_t>(ids.size()); ++t) {
    if (row_of(t) >= 0 && row_of(t) < rows) plan.tokens.push_back(t);
  }
  std::stable_sort(plan.tokens.begin(), plan.tokens.end(),
                   [&](std::int64_t a, std::int64_t b) { return row_of(a) < row_of(b); });
  const auto count = static_cast<std::int64_t>(plan.tokens.size());
  const auto row_at = [&](std::int64_t i) {
    return row_of(plan.tokens[static_cast<std::size_t>(i)]);
  };
  for (std::int64_t begin = 0; begin < count;) {
    std::int64_t end = begin;
    while (end < count && row_at(end) == row_at(begin)) ++end;
    EmbeddingPlan::Row row{row_at(begin), static_cast<std::int64_t>(plan.pieces.size()), 0};
    for (; begin < end; begin += kPieceTokens) {
      plan.pieces.push_back({begin, std::min(end, begin + kPieceTokens)});
    }
    begin = end;
    row.end_piece = static_cast<std::int64_t>(plan.pieces.size());
    plan.rows.push_back(row);
  }
  return plan;
}

void embedding(const std::int32_t* ids, std::int64_t first_row, ConstMatrix table, Matrix out,
               cudaStream_t stream) {
  with_type(out.type, [&]<typename T>() {
    with_packs(packs(8, out.columns, {table, out}), [&]<int kCount>() {
      map<kCount>(Gather<T>{ids, first_row, table.rows, view<T>(table), view<T>(out)}, out.rows,
                  out.columns, stream);
    });
  });
}

void embedding_backward(const DeviceEmbeddingPlan& plan, ConstMatrix dout, Matrix dtable,
                        Matrix sums, cudaStream_t stream) {
  with_packs(packs(8, dout.columns, {dout, dtable, sums}), [&]<int kCount>() {
    with_type(dout.type, [&]<typename T>() {
      map<kCount>(SumPieces<T>{plan.tokens, plan.pieces, view<T>(dout), view<float>(sums)},
                  sums.rows, dout.columns, stream);
    });
    with_type(dtable.type, [&]<typename G>() {
      map<kCount>(AddPieces<G>{plan.rows, view<float>(ConstMatrix(sums)), view<G>(dtable)},
                  plan.row_count, dout.columns, stream);
    });
  });
}

}  // namespace hydraulis::cuda
