#include <algorithm>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

#include "planner/packing.h"

namespace hydraulis {
namespace {

using Bins = std::vector<std::vector<int>>;

std::vector<int> descending_order(std::span<const std::int64_t> sizes) {
  std::vector<int> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int x, int y) { return sizes[x] > sizes[y]; });
  return order;
}

/// First-fit decreasing with a tournament tree over the bins' free space: O(n log n).
Bins first_fit_decreasing(std::span<const std::int64_t> sizes, std::int64_t capacity,
                          std::span<const int> order) {
  std::size_t leaves = 1;
  while (leaves < sizes.size()) leaves *= 2;
  std::vector<std::int64_t> room(2 * leaves, capacity);
  Bins bins;
  for (const int item : order) {
    std::size_t node = 1;
    while (node < leaves) {
      node *= 2;
      if (room[node] < sizes[item]) ++node;
    }
    const std::size_t bin = node - leaves;
    if (bin >= bins.size()) bins.resize(bin + 1);
    bins[bin].push_back(item);
    room[node] -= sizes[item];
    for (node /= 2; node >= 1; node /= 2) room[node] = std::max(room[2 * node], room[2 * node + 1]);
  }
  return bins;
}

/// Opens bins one after another, each with the largest item left and the subset of the others that
/// fills it best (subset sums on bit words). Costs O(n · capacity) a bin, so only for small inputs.
Bins fill_bins_greedily(std::span<const std::int64_t> sizes, std::int64_t capacity,
                        std::span<const int> order) {
  std::vector<int> left(order.begin(), order.end());
  const auto words = static_cast<std::size_t>(capacity / 64 + 1);
  std::vector<std::uint64_t> reached(words);
  std::vector<std::uint64_t> fresh(words);
  std::vector<int> reached_by(static_cast<std::size_t>(capacity) + 1);
  Bins bins;
  while (!left.empty()) {
    std::vector<int>& bin = bins.emplace_back();
    bin.push_back(left.front());
    const std::int64_t room = capacity - sizes[left.front()];
    std::fill(reached.begin(), reached.end(), 0);
    reached[0] = 1;
    std::int64_t fullest = 0;
    for (std::size_t k = 1; k < left.size() && fullest < room; ++k) {
      const std::int64_t size = sizes[left[k]];
      if (size > room) continue;
      const auto shift_words = static_cast<std::size_t>(size / 64);
      const auto shift_bits = static_cast<unsigned>(size % 64);
      for (std::size_t w = shift_words; w < words; ++w) {
        std::uint64_t moved = reached[w - shift_words] << shift_bits;
        if (shift_bits != 0 && w > shift_words) {
          moved |= reached[w - shift_words - 1] >> (64 - shift_bits);
        }
        fresh[w] = moved & ~reached[w];
      }
      for (std::size_t w = shift_words; w < words; ++w) {
        for (std::uint64_t bits = fresh[w]; bits != 0; bits &= bits - 1) {
          const auto sum = static_cast<std::int64_t>(w * 64) + __builtin_ctzll(bits);
          if (sum > room) break;
          reached_by[static_cast<std::size_t>(sum)] = static_cast<int>(k);
          fullest = std::max(fullest, sum);
        }
        reached[w] |= fresh[w];
      }
    }
    std::vector<char> taken(left.size(), 0);
    taken[0] = 1;
    for (std::int64_t sum = fullest; sum > 0;) {
      const int k = reached_by[static_cast<std::size_t>(sum)];
      taken[static_cast<std::size_t>(k)] = 1;
      bin.push_back(left[static_cast<std::size_t>(k)]);
      sum -= sizes[left[static_cast<std::size_t>(k)]];
    }
    std::size_t kept = 0;
    for (std::size_t k = 0; k < left.size(); ++k) {
      if (taken[k] == 0) left[kept++] = left[k];
    }
    left.resize(kept);
  }
  return bins;
}

}  // namespace

std::int64_t bins_lower_bound(std::span<const std::int64_t> sizes, std::int64_t capacity) {
  if (sizes.empty()) return 0;
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  std::int64_t bound = (total + capacity - 1) / capacity;
  // L2: for a threshold q, items above capacity−q stand alone, items above capacity/2 each need a
  // bin, and what is at least q fills what those leave free.
  std::vector<std::int64_t> sorted(sizes.begin(), sizes.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::int64_t> prefix(sorted.size() + 1, 0);
  std::partial_sum(sorted.begin(), sorted.end(), prefix.begin() + 1);
  const auto first_above = [&](std::int64_t value) {
    return static_cast<std::int64_t>(std::upper_bound(sorted.begin(), sorted.end(), value) -
                                     sorted.begin());
  };
  const auto n = static_cast<std::int64_t>(sorted.size());
  const std::int64_t half = first_above(capacity / 2);
  std::int64_t previous = -1;
  for (const std::int64_t q : sorted) {
    if (q > capacity / 2) break;
    if (q == previous) continue;
    previous = q;
    const std::int64_t alone = first_above(capacity - q);
    const std::int64_t small_begin = first_above(q - 1);
    const std::int64_t free = (alone - half) * capacity - (prefix[alone] - prefix[half]);
    const std::int64_t rest = prefix[half] - prefix[small_begin] - free;
    bound = std::max(bound, n - half + (rest > 0 ? (rest + capacity - 1) / capacity : 0));
  }
  return std::max(bound, n - half);
}

std::vector<std::vector<int>> pack_fewest_bins(std::span<const std::int64_t> sizes,
                                               std::int64_t capacity) {
  if (sizes.empty()) return {};
  const std::vector<int> order = descending_order(sizes);
  Bins best = first_fit_decreasing(sizes, capacity, order);
  // The subset-sum heuristic costs n·capacity/64 words a bin; beyond this it would outlast its
  // gain.
  constexpr std::int64_t kMostWords = 4'000'000;
  const auto n = static_cast<std::int64_t>(sizes.size());
  const auto bins = static_cast<std::int64_t>(best.size());
  if (n * (capacity / 64 + 1) * bins <= kMostWords && bins > bins_lower_bound(sizes, capacity)) {
    Bins filled = fill_bins_greedily(sizes, capacity, order);
    if (filled.size() < best.size()) best = std::move(filled);
  }
  return best;
}

std::vector<std::vector<int>> pack_to_shares(std::span<const std::int64_t> sizes,
                                             std::span<const double> weights, std::int64_t capacity,
                                             std::span<const double> shares) {
  std::vector<int> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int x, int y) { return weights[x] > weights[y]; });
  struct Bin {
    double lacks;
    int index;
    bool operator<(const Bin& other) const {
      return lacks != other.lacks ? lacks < other.lacks : index > other.index;
    }
  };
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::priority_queue<Bin> hungriest;
  for (std::size_t bin = 0; bin < shares.size(); ++bin) {
    hungriest.push({total * shares[bin], static_cast<int>(bin)});
  }
  Bins result(shares.size());
  std::vector<std::int64_t> used(shares.size(), 0);
  std::vector<Bin> passed;
  constexpr std::size_t kMostPassed = 64;  // bins without room looked at per item
  for (const int item : order) {
    passed.clear();
    bool placed = false;
    while (!hungriest.empty() && passed.size() < kMostPassed) {
      const Bin bin = hungriest.top();
      hungriest.pop();
      const auto index = static_cast<std::size_t>(bin.index);
      if (used[index] + sizes[item] <= capacity) {
        used[index] += sizes[item];
        result[index].push_back(item);
        hungriest.push({bin.lacks - weights[item], bin.index});
        placed = true;
        break;
      }
      passed.push_back(bin);
    }
    for (const Bin& bin : passed) hungriest.push(bin);
    if (!placed) return {};
  }
  return result;
}

}  // namespace hydraulis
