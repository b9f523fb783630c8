#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/cpu/attention_block.h"
#include "kernels/cpu/parallel.h"

// Attention block by block with a running softmax (Milakov and Gimelshein, 2018; Dao et al., 2022):
// memory grows with the length, never with its square.
namespace hydraulis::cpu {
namespace {

/// A stretch of consecutive blocks of queries, counted over all segments in their order.
struct Stretch {
  std::size_t segment = 0;  ///< of the first block
  std::int64_t query = 0;   ///< in that segment
  std::int64_t blocks = 0;
};

template <typename T>
std::int64_t keys_of_block(const AttentionSegment& segment, std::int64_t query) {
  return segment.causal ? std::min(query + kQueryBlock<T>, segment.query_count) : segment.key_count;
}

/// Cost of a block in multiplications of a vector, with what a block costs whatever its keys.
template <typename T>
double block_cost(const AttentionSegment& segment, std::int64_t query) {
  const std::int64_t queries = std::min<std::int64_t>(kQueryBlock<T>, segment.query_count - query);
  const std::int64_t vectors = (queries + kLanes<T> - 1) / kLanes<T>;
  return static_cast<double>(vectors * (keys_of_block<T>(segment, query) + 16));
}

bool is_empty(const AttentionSegment& segment) {
  return segment.query_count == 0 || segment.key_count == 0;
}

template <typename T, typename Visit>
void for_each_block(std::span<const AttentionSegment> segments, Visit visit) {
  for (std::size_t s = 0; s < segments.size(); ++s) {
    if (is_empty(segments[s])) continue;
    for (std::int64_t query = 0; query < segments[s].query_count; query += kQueryBlock<T>) {
      visit(s, query);
    }
  }
}

/// Stretches of about equal cost, several a thread, so that threads finish together.
template <typename T>
std::vector<Stretch> stretches_of(std::span<const AttentionSegment> segments, double most) {
  std::vector<Stretch> stretches;
  double cost = 0;
  std::int64_t rows = 0;
  for_each_block<T>(segments, [&](std::size_t s, std::int64_t query) {
    if (stretches.empty() || cost >= most || rows >= kTaskRows) {
      stretches.push_back({s, query, 0});
      cost = 0;
      rows = 0;
    }
    ++stretches.back().blocks;
    rows += std::min<std::int64_t>(kQueryBlock<T>, segments[s].query_count - query);
    cost += block_cost<T>(segments[s], query);
  });
  return stretches;
}

template <typename T>
struct Workspace {
  static constexpr std::int64_t width = kQueryBlock<T>;
  static std::int64_t elements(std::int64_t d) {
    return 2 * d * width + kKeyBlock * width + 2 * kKeyBlock * d + 3 * width;
  }
  Workspace(T* memory, std::int64_t d)
      : query(memory),
        out(query + d * width),
        scores(out + d * width),
        most(scores + kKeyBlock * width),
        sum(most + width),
        rescale(sum + width),
        keys(rescale + width),
        values(keys + kKeyBlock * d) {}
  T* query;    // [d][lane], scaled
  T* out;      // [d][lane]
  T* scores;   // [key][lane], then probabilities
  T* most;     // [lane] running maximum
  T* sum;      // [lane] running sum of exponentials
  T* rescale;  // [lane] what earlier sums are multiplied by
  T* keys;     // [key][d]
  T* values;   // [key][d]
};

/// Turns scores into exp(score − running maximum) and updates the running maximum and sum.
template <typename T>
void softmax_block(const BlockPair& pair, Workspace<T>& work) {
  constexpr std::int64_t lanes = kLanes<T>;
  constexpr std::int64_t width = kQueryBlock<T>;
  const Vector<T> minus_infinity = broadcast(-std::numeric_limits<T>::infinity());
  for (std::int64_t lane = 0; lane < pair.queries; lane += lanes) {
    const std::int64_t seen = pair.keys_seen(lane, lanes);
    T* column = work.scores + lane;
    // Key j is seen by lanes i with query + lane + i >= key + j.
    const std::int64_t all_see = pair.causal ? pair.query + lane - pair.key + 1 : seen;
    for (std::int64_t j = std::max<std::int64_t>(all_see, 0); j < seen; ++j) {
      const auto first = static_cast<T>(pair.key + j - pair.query - lane);
      T* at = column + j * width;
      store(at, lane_numbers<T>() < first ? minus_infinity : load(at));
    }
    const Vector<T> before = load(work.most + lane);
    Vector<T> most = before;
    Vector<T> other = before;
    std::int64_t j = 0;
    for (; j + 2 <= seen; j += 2) {
      most = greater(load(column + j * width), most);
      other = greater(load(column + (j + 1) * width), other);
    }
    if (j < seen) most = greater(load(column + j * width), most);
    most = greater(other, most);
    const Vector<T> zero{};
    const Vector<T> shift = most == minus_infinity ? zero : most;
    const Vector<T> rescale = exp<T>(before - shift);
    Vector<T> sum = load(work.sum + lane) * rescale;
    for (j = 0; j < seen; ++j) {
      const Vector<T> p = exp<T>(load(column + j * width) - shift);
      sum += p;
      store(column + j * width, p);
    }
    store(work.most + lane, most);
    store(work.sum + lane, sum);
    store(work.rescale + lane, rescale);
  }
}

/// out[c][lane] = out·rescale + Σ_key values[key][c]·scores[key][lane].
template <typename T>
void add_values(const BlockPair& pair, std::int64_t d, Workspace<T>& work) {
  constexpr std::int64_t width = kQueryBlock<T>;
  const bool first_keys = pair.key == 0;  // nothing is there yet
  for_each_query_group<T>(pair, [&](int first, int count, std::int64_t keys) {
    const std::int64_t lane = first * kLanes<T>;
    small_product(d, count, work.values, std::int64_t{1}, d, work.scores + lane, width, keys,
                  [&](std::int64_t c, int v, Vector<T> sum) {
                    T* to = work.out + c * width + lane + v * kLanes<T>;
                    const T* rescale = work.rescale + lane + v * kLanes<T>;
                    store(to, first_keys ? sum : load(to) * load(rescale) + sum);
                  });
  });
}

/// Writes a finished block, or merges it with the partial result that is there.
template <typename T>
void write_block(std::int64_t queries, std::int64_t d, bool accumulate, const Workspace<T>& work,
                 View<T> out, View<T> lse, std::int64_t row, std::int64_t head) {
  constexpr std::int64_t width = kQueryBlock<T>;
  T factor[width];
  T kept[width];
  for (std::int64_t i = 0; i < queries; ++i) {
    const T log_sum = work.most[i] + std::log(work.sum[i]);
    T& total = lse.row(row + i)[head];
    factor[i] = T(1) / work.sum[i];
    kept[i] = T(0);
    if (accumulate && total > -std::numeric_limits<T>::infinity()) {
      const T most = std::max(total, log_sum);
      const T old_weight = std::exp(total - most);
      const T new_weight = std::exp(log_sum - most);
      kept[i] = old_weight / (old_weight + new_weight);
      factor[i] *= new_weight / (old_weight + new_weight);
      total = most + std::log(old_weight + new_weight);
    } else {
      total = log_sum;
    }
  }
  for_each_transposed(work.out, queries, d,
                      [&](std::int64_t i, std::int64_t c, Vector<T> x, auto lanes) {
                        T* to = out.row(row + i) + head * d + c;
                        Vector<T> result = x * factor[i];
                        if (kept[i] != T(0)) result += load(to, lanes) * kept[i];
                        store(to, result, lanes);
                      });
}

}  // namespace

template <typename T>
void attention(Device& device, const AttentionShape& shape,
               std::span<const AttentionSegment> segments, View<const T> q, View<const T> k,
               View<const T> v, bool accumulate, View<T> out, View<T> lse) {
  constexpr std::int64_t width = kQueryBlock<T>;
  const std::int64_t d = shape.head_dim;
  const std::int64_t group = shape.heads / shape.kv_heads;
  double total = 0;
  for_each_block<T>(segments, [&](std::size_t s, std::int64_t query) {
    total += block_cost<T>(segments[s], query);
  });
  const double multiplications = total * static_cast<double>(kLanes<T> * 2 * d * shape.heads);
  const int threads = multiplications < 2e5 ? 1 : device.threads();
  const std::vector<Stretch> stretches =
      stretches_of<T>(segments, total * shape.heads / (threads * 16.0));
  const std::int64_t each = Workspace<T>::elements(d);
  const DeviceBuffer memory(device, threads * each * static_cast<std::int64_t>(sizeof(T)));
  const auto count = static_cast<std::int64_t>(stretches.size());

  parallel(threads, count * shape.heads, [&](std::int64_t task, int worker) {
    // The last stretches have the longest rows of causal segments: they start first.
    const Stretch& stretch = stretches[static_cast<std::size_t>(count - 1 - task / shape.heads)];
    const std::int64_t head = task % shape.heads;
    const std::int64_t kv_column = head / group * d;
    Workspace<T> work(static_cast<T*>(memory.data()) + worker * each, d);
    std::size_t s = stretch.segment;
    std::int64_t query = stretch.query;
    for (std::int64_t block = 0; block < stretch.blocks; ++block) {
      while (query >= segments[s].query_count || is_empty(segments[s])) {
        ++s;
        query = 0;
      }
      const AttentionSegment& segment = segments[s];
      const std::int64_t queries = std::min<std::int64_t>(width, segment.query_count - query);
      transpose_block(q.row(segment.query_begin + query) + head * d, q.stride, queries, d,
                      static_cast<T>(shape.scale), work.query);
      std::fill(work.most, work.most + width, -std::numeric_limits<T>::infinity());
      std::fill(work.sum, work.sum + width, T(0));
      const std::int64_t keys = keys_of_block<T>(segment, query);
      for (std::int64_t key = 0; key < keys; key += kKeyBlock) {
        const BlockPair pair{query, queries, key, std::min(kKeyBlock, keys - key), segment.causal};
        copy_rows(k.row(segment.key_begin + key) + kv_column, k.stride, pair.keys, d, work.keys);
        copy_rows(v.row(segment.key_begin + key) + kv_column, v.stride, pair.keys, d, work.values);
        block_scores(pair, work.keys, d, work.query, work.scores);
        softmax_block(pair, work);
        add_values(pair, d, work);
      }
      write_block(queries, d, accumulate, work, out, lse, segment.query_begin + query, head);
      query += width;
    }
  });
}

template <typename T>
void attention_delta(int threads, const AttentionShape& shape, View<const T> out,
                     View<const T> dout, View<T> delta) {
  const std::int64_t d = shape.head_dim;
  parallel_rows(threads, out.rows, out.columns, [&](Range rows) {
    for (std::int64_t t = rows.begin; t < rows.end; ++t) {
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        const T* a = out.row(t) + head * d;
        const T* b = dout.row(t) + head * d;
        Vector<T> sum{};
        for_each_vector<T>(
            d, [&](std::int64_t c, auto lanes) { sum += load(a + c, lanes) * load(b + c, lanes); });
        delta.row(t)[head] = sum_of_lanes<T>(sum);
      }
    }
  });
}

#define HYDRAULIS_INSTANTIATE(T)                                                                   \
  template void attention<T>(Device&, const AttentionShape&, std::span<const AttentionSegment>,    \
                             View<const T>, View<const T>, View<const T>, bool, View<T>, View<T>); \
  template void attention_delta<T>(int, const AttentionShape&, View<const T>, View<const T>,       \
                                   View<T>);
HYDRAULIS_INSTANTIATE(float)
HYDRAULIS_INSTANTIATE(double)
#undef HYDRAULIS_INSTANTIATE

}  // namespace hydraulis::cpu
