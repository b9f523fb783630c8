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
  std::int64_t first_key = 0;
  std::int64_t keys_end = 0;
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
  std::int64_t rows = 0;
  for (std::size_t s = 0; s < sorted.size(); ++s) {
    const std::int64_t first_key = sorted[s].key_begin;
    const bool shares_keys = !tasks.empty() && first_key < tasks.back().keys_end;
    const bool full = !tasks.empty() && (tasks.back().cost >= most || rows >= kTaskRows);
    if (tasks.empty() || (full && !shares_keys)) {
      tasks.push_back({s, s, 0, first_key, first_key});
      rows = 0;
    }
    rows += sorted[s].query_count;
    Task& task = tasks.back();
    task.end = s + 1;
    task.cost += segment_cost(sorted[s], block);
    task.keys_end = std::max(task.keys_end, first_key + sorted[s].key_count);
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
  const bool first_keys = pair.key == 0;  // nothing is there yet
  for_each_query_group<T>(pair, [&](int first, int count, std::int64_t keys) {
    const std::int64_t lane = first * kLanes<T>;
    small_product(d, count, work.keys, std::int64_t{1}, d, work.dscores + lane, width, keys,
                  [&](std::int64_t c, int v, Vector<T> sum) {
                    T* to = work.dquery + c * width + lane + v * kLanes<T>;
                    store(to, first_keys ? sum : load(to) + sum);
                  });
  });
}

template <typename T>
struct Arguments {
  const AttentionShape& shape;
  View<const T> q, k, v, dout, lse, delta;
  View<T> dq;
};

/// Where the gradients of a task's keys and values of one head are summed.
template <typename T>
struct KeyGradients {
  View<T> dk, dv;
  std::int64_t first_key = 0;  ///< row of k and v that is the views' first row
  std::int64_t column = 0;
  T* dk_at(std::int64_t key) const { return dk.row(key - first_key) + column; }
  T* dv_at(std::int64_t key) const { return dv.row(key - first_key) + column; }
};

/// What one thread does at a time: every `chunks`-th block of queries of a task for one key/value
/// head. Chunks sum into memory of their own, which is added up in their order.
struct Part {
  const Task* task = nullptr;
  std::int64_t kv_head = 0;
  std::int64_t chunk = 0;
  std::int64_t chunks = 1;
  std::int64_t memory = 0;  ///< its first row there
};

/// One block of queries of a segment, one head: all its keys.
template <typename T>
void query_block(const Arguments<T>& x, const AttentionSegment& segment, std::int64_t query,
                 std::int64_t head, std::int64_t kv_column, const KeyGradients<T>& gradients,
                 const Workspace<T>& work) {
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
    add_key_gradient(pair, d, work.scores, work.dout_rows, gradients.dv_at(key_row),
                     gradients.dv.stride);
    add_key_gradient(pair, d, work.dscores, work.query_rows, gradients.dk_at(key_row),
                     gradients.dk.stride);
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
  // A task that would keep one thread busy after the others are done is cut into chunks.
  std::vector<Part> parts;
  std::int64_t rows = 0;
  for (const Task& task : tasks) {
    const double share = task.cost * static_cast<double>(group) / (total / (2.0 * threads));
    const std::int64_t chunks =
        share <= 1 ? 1 : std::min<std::int64_t>(threads, static_cast<std::int64_t>(share + 1));
    for (std::int64_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        parts.push_back({&task, kv_head, chunk, chunks, rows});
        if (chunks > 1) rows += task.keys_end - task.first_key;
      }
    }
  }
  const std::int64_t each = Workspace<T>::elements(d);
  const auto bytes = static_cast<std::int64_t>(sizeof(T));
  const DeviceBuffer memory(device, threads * each * bytes);
  const DeviceBuffer chunk_memory(device, 2 * rows * d * bytes);
  const Arguments<T> arguments{shape, q, k, v, dout, lse, delta, dq};
  const auto gradients_of = [&](const Part& part) {
    if (part.chunks == 1) return KeyGradients<T>{dk, dv, 0, part.kv_head * d};
    const std::int64_t keys = part.task->keys_end - part.task->first_key;
    T* const first = static_cast<T*>(chunk_memory.data()) + part.memory * d;
    return KeyGradients<T>{
        {first, keys, d, d}, {first + rows * d, keys, d, d}, part.task->first_key, 0};
  };

  parallel(threads, static_cast<std::int64_t>(parts.size()), [&](std::int64_t p, int worker) {
    const Part& part = parts[static_cast<std::size_t>(p)];
    const Task& task = *part.task;
    const Workspace<T> work(static_cast<T*>(memory.data()) + worker * each, d);
    const KeyGradients<T> gradients = gradients_of(part);
    if (part.chunks > 1) {
      std::fill_n(gradients.dk.data, gradients.dk.elements(), T(0));
      std::fill_n(gradients.dv.data, gradients.dv.elements(), T(0));
    }
    std::int64_t block = 0;
    for (std::size_t s = task.begin; s < task.end; ++s) {
      for (std::int64_t head = part.kv_head * group; head < (part.kv_head + 1) * group; ++head) {
        for (std::int64_t query = 0; query < sorted[s].query_count; query += kQueryBlock<T>) {
          if (block++ % part.chunks != part.chunk) continue;
          query_block(arguments, sorted[s], query, head, part.kv_head * d, gradients, work);
        }
      }
    }
  });
  if (rows == 0) return;
  parallel(threads, static_cast<std::int64_t>(parts.size()), [&](std::int64_t p, int) {
    const Part& first = parts[static_cast<std::size_t>(p)];
    if (first.chunks == 1 || first.chunk != 0) return;
    for (std::int64_t chunk = 0; chunk < first.chunks; ++chunk) {
      const KeyGradients<T> from = gradients_of(parts[static_cast<std::size_t>(p + chunk)]);
      for (std::int64_t key = first.task->first_key; key < first.task->keys_end; ++key) {
        for_each_vector<T>(d, [&](std::int64_t c, auto lanes) {
          T* dk_to = dk.row(key) + first.kv_head * d + c;
          T* dv_to = dv.row(key) + first.kv_head * d + c;
          store(dk_to, load(dk_to, lanes) + load(from.dk_at(key) + c, lanes), lanes);
          store(dv_to, load(dv_to, lanes) + load(from.dv_at(key) + c, lanes), lanes);
        });
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
