#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/cpu/attention_block.h"
#include "kernels/cpu/parallel.h"

namespace hydraulis::cpu {
namespace {

/// Segments one thread works through, in an order of its own: all that share keys are in one task,
/// so that every gradient is summed by one thread.
struct Task {
  std::size_t begin = 0;  ///< in the order of keys
  std::size_t end = 0;
  double cost = 0;
};

double segment_cost(const AttentionSegment& segment, std::int64_t block) {
  const double area = static_cast<double>(segment.query_count + block) *
                      static_cast<double>(segment.key_count + 16);
  return segment.causal ? area / 2 : area;
}

/// The segments that do anything, by their keys.
std::vector<AttentionSegment> by_keys(std::span<const AttentionSegment> segments) {
  std::vector<AttentionSegment> sorted;
  for (const AttentionSegment& segment : segments) {
    if (segment.query_count > 0 && segment.key_count > 0) sorted.push_back(segment);
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.key_begin < b.key_begin; });
  return sorted;
}

/// Tasks of about equal cost where segments allow it.
std::vector<Task> tasks_of(const std::vector<AttentionSegment>& sorted, std::int64_t block,
                           double most) {
  std::vector<Task> tasks;
  std::int64_t keys_end = 0;
  for (std::size_t s = 0; s < sorted.size(); ++s) {
    const bool shares_keys = s > 0 && sorted[s].key_begin < keys_end;
    if (tasks.empty() || (!shares_keys && tasks.back().cost >= most)) tasks.push_back({s, s, 0});
    tasks.back().end = s + 1;
    tasks.back().cost += segment_cost(sorted[s], block);
    keys_end = std::max(keys_end, sorted[s].key_begin + sorted[s].key_count);
  }
  return tasks;
}

template <typename T>
struct Workspace {
  static constexpr std::int64_t width = kQueryBlock<T>;
  static std::int64_t padded(std::int64_t d) { return (d + kLanes<T> - 1) / kLanes<T> * kLanes<T>; }
  static std::int64_t elements(std::int64_t d) {
    return 3 * d * width + 2 * padded(d) * width + 2 * kKeyBlock * width + 2 * kKeyBlock * d +
           2 * width;
  }
  Workspace(T* memory, std::int64_t d)
      : query(memory),
        dout(query + d * width),
        dquery(dout + d * width),
        query_rows(dquery + d * width),
        dout_rows(query_rows + padded(d) * width),
        scores(dout_rows + padded(d) * width),
        dscores(scores + kKeyBlock * width),
        lse(dscores + kKeyBlock * width),
        delta(lse + width),
        keys(delta + width),
        values(keys + kKeyBlock * d) {}
  T* query;       // [d][lane], scaled
  T* dout;        // [d][lane]
  T* dquery;      // [d][lane]
  T* query_rows;  // [lane][padded d], scaled
  T* dout_rows;   // [lane][padded d]
  T* scores;      // [key][lane], then probabilities
  T* dscores;     // [key][lane]
  T* lse;         // [lane]
  T* delta;       // [lane]
  T* keys;        // [key][d]
  T* values;      // [key][d]
};

/// Rows to[lane][padded columns] = factor·from, zeros in the padding.
template <typename T>
void pad_rows(const T* from, std::int64_t stride, std::int64_t count, std::int64_t columns,
              T factor, T* to) {
  const std::int64_t padded = Workspace<T>::padded(columns);
  for (std::int64_t i = 0; i < count; ++i) {
    for_each_vector<T>(columns, [&](std::int64_t c, auto lanes) {
      store(to + i * padded + c, factor * load(from + i * stride + c, lanes));
    });
  }
}

/// From scores and dP to probabilities and dS = P·(dP − delta).
template <typename T>
void softmax_backward_block(const BlockPair& pair, const Workspace<T>& work) {
  constexpr std::int64_t lanes = kLanes<T>;
  constexpr std::int64_t width = kQueryBlock<T>;
  for (std::int64_t lane = 0; lane < pair.queries; lane += lanes) {
    const std::int64_t seen = pair.keys_seen(lane, lanes);
    const std::int64_t all_see = pair.causal ? pair.query + lane - pair.key + 1 : seen;
    const Vector<T> lse = load(work.lse + lane);
    const Vector<T> delta = load(work.delta + lane);
    for (std::int64_t j = 0; j < seen; ++j) {
      T* score = work.scores + j * width + lane;
      T* dscore = work.dscores + j * width + lane;
      Vector<T> p = exp<T>(load(score) - lse);
      if (j >= all_see) {
        const auto first = static_cast<T>(pair.key + j - pair.query - lane);
        const Vector<T> zero{};
        p = lane_numbers<T>() < first ? zero : p;
      }
      store(score, p);
      store(dscore, p * (load(dscore) - delta));
    }
  }
}

/// to[key][c] += Σ_lane weights[key][lane]·rows[lane][c].
template <typename T>
void add_key_gradient(const BlockPair& pair, std::int64_t d, const T* weights, const T* rows, T* to,
                      std::int64_t stride) {
  constexpr std::int64_t width = kQueryBlock<T>;
  const std::int64_t padded = Workspace<T>::padded(d);
  const int vectors = static_cast<int>(padded / kLanes<T>);
  const bool ragged = d != padded;
  for_each_key_group<T>(pair, [&](std::int64_t j, std::int64_t count, int first) {
    const std::int64_t lane = first * kLanes<T>;
    small_product(count, vectors, weights + j * width + lane, width, std::int64_t{1},
                  rows + lane * padded, padded, pair.queries - lane,
                  [&](std::int64_t i, int v, Vector<T> sum) {
                    T* at = to + (j + i) * stride + v * kLanes<T>;
                    if (ragged && v == vectors - 1) {
                      const FirstLanes rest{static_cast<int>(d - v * kLanes<T>)};
                      store(at, load(at, rest) + sum, rest);
                    } else {
                      store(at, load(at) + sum);
                    }
                  });
  });
}

/// dquery[c][lane] += Σ_key keys[key][c]·dscores[key][lane].
template <typename T>
void add_query_gradient(const BlockPair& pair, std::int64_t d, const Workspace<T>& work) {
  constexpr std::int64_t width = kQueryBlock<T>;
  for_each_query_group<T>(pair, [&](int first, int count, std::int64_t keys) {
    const std::int64_t lane = first * kLanes<T>;
    small_product(d, count, work.keys, std::int64_t{1}, d, work.dscores + lane, width, keys,
                  [&](std::int64_t c, int v, Vector<T> sum) {
                    T* to = work.dquery + c * width + lane + v * kLanes<T>;
                    store(to, load(to) + sum);
                  });
  });
}

template <typename T>
struct Arguments {
  const AttentionShape& shape;
  View<const T> q, k, v, dout, lse, delta;
  View<T> dq, dk, dv;
};

/// One block of queries of a segment, one head: all its keys.
template <typename T>
void query_block(const Arguments<T>& x, const AttentionSegment& segment, std::int64_t query,
                 std::int64_t head, std::int64_t kv_column, const Workspace<T>& work) {
  constexpr std::int64_t width = kQueryBlock<T>;
  const std::int64_t d = x.shape.head_dim;
  const std::int64_t queries = std::min<std::int64_t>(width, segment.query_count - query);
  const std::int64_t row = segment.query_begin + query;
  const auto scale = static_cast<T>(x.shape.scale);
  const T* q = x.q.row(row) + head * d;
  const T* dout = x.dout.row(row) + head * d;
  transpose_block(q, x.q.stride, queries, d, scale, work.query);
  transpose_block(dout, x.dout.stride, queries, d, T(1), work.dout);
  pad_rows(q, x.q.stride, queries, d, scale, work.query_rows);
  pad_rows(dout, x.dout.stride, queries, d, T(1), work.dout_rows);
  std::fill(work.dquery, work.dquery + d * width, T(0));
  for (std::int64_t i = 0; i < width; ++i) {
    work.lse[i] = i < queries ? x.lse.row(row + i)[head] : std::numeric_limits<T>::infinity();
    work.delta[i] = i < queries ? x.delta.row(row + i)[head] : T(0);
  }
  const std::int64_t keys = segment.causal ? query + queries : segment.key_count;
  for (std::int64_t key = 0; key < keys; key += kKeyBlock) {
    const BlockPair pair{query, queries, key, std::min(kKeyBlock, keys - key), segment.causal};
    const std::int64_t key_row = segment.key_begin + key;
    copy_rows(x.k.row(key_row) + kv_column, x.k.stride, pair.keys, d, work.keys);
    copy_rows(x.v.row(key_row) + kv_column, x.v.stride, pair.keys, d, work.values);
    block_scores(pair, work.keys, d, work.query, work.scores);
    block_scores(pair, work.values, d, work.dout, work.dscores);
    softmax_backward_block(pair, work);
    add_key_gradient(pair, d, work.scores, work.dout_rows, x.dv.row(key_row) + kv_column,
                     x.dv.stride);
    add_key_gradient(pair, d, work.dscores, work.query_rows, x.dk.row(key_row) + kv_column,
                     x.dk.stride);
    add_query_gradient(pair, d, work);
  }
  for_each_transposed(work.dquery, queries, d,
                      [&](std::int64_t i, std::int64_t c, Vector<T> gradient, auto lanes) {
                        T* to = x.dq.row(row + i) + head * d + c;
                        store(to, load(to, lanes) + scale * gradient, lanes);
                      });
}

}  // namespace

template <typename T>
void attention_backward(Device& device, const AttentionShape& shape,
                        std::span<const AttentionSegment> segments, View<const T> q,
                        View<const T> k, View<const T> v, View<const T> dout, View<const T> lse,
                        View<const T> delta, View<T> dq, View<T> dk, View<T> dv) {
  const std::int64_t d = shape.head_dim;
  const std::int64_t group = shape.heads / shape.kv_heads;
  const std::vector<AttentionSegment> sorted = by_keys(segments);
  double total = 0;
  for (const AttentionSegment& segment : sorted) {
    total += segment_cost(segment, kQueryBlock<T>) * static_cast<double>(shape.heads);
  }
  const int threads = total * static_cast<double>(5 * d) < 2e5 ? 1 : device.threads();
  std::vector<Task> tasks =
      tasks_of(sorted, kQueryBlock<T>, total / (threads * 16.0 * static_cast<double>(group)));
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const Task& a, const Task& b) { return a.cost > b.cost; });
  const std::int64_t each = Workspace<T>::elements(d);
  const DeviceBuffer memory(device, threads * each * static_cast<std::int64_t>(sizeof(T)));
  const Arguments<T> arguments{shape, q, k, v, dout, lse, delta, dq, dk, dv};

  const auto parts = static_cast<std::int64_t>(tasks.size()) * shape.kv_heads;
  parallel(threads, parts, [&](std::int64_t part, int worker) {
    const Task& task = tasks[static_cast<std::size_t>(part / shape.kv_heads)];
    const std::int64_t kv_head = part % shape.kv_heads;
    const Workspace<T> work(static_cast<T*>(memory.data()) + worker * each, d);
    for (std::size_t s = task.begin; s < task.end; ++s) {
      for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (std::int64_t query = 0; query < sorted[s].query_count; query += kQueryBlock<T>) {
          query_block(arguments, sorted[s], query, head, kv_head * d, work);
        }
      }
    }
  });
}

#define HYDRAULIS_INSTANTIATE(T)                                                                  \
  template void attention_backward<T>(Device&, const AttentionShape&,                             \
                                      std::span<const AttentionSegment>, View<const T>,           \
                                      View<const T>, View<const T>, View<const T>, View<const T>, \
                                      View<const T>, View<T>, View<T>, View<T>);
HYDRAULIS_INSTANTIATE(float)
HYDRAULIS_INSTANTIATE(double)
#undef HYDRAULIS_INSTANTIATE

}  // namespace hydraulis::cpu
