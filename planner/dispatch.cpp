#include "planner/dispatch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/random.h"
#include "planner/bubble.h"

namespace hydraulis {
namespace {

/// A pipeline's load during the search. Sequences are kept sorted by rank, that is longest first.
struct Load {
  std::vector<int> ranks;
  double work = 0;
  std::int64_t tokens = 0;
  std::int64_t large = 0;
  double seconds = 0;
};

/// Search state over sequences renumbered by descending length ("ranks").
class Search {
 public:
  Search(std::span<const PipelineCost> pipelines, std::span<const Sequence> sequences,
         std::span<const double> corrections, std::int64_t evaluations)
      : pipelines_(pipelines), evaluations_left_(evaluations) {
    order_.resize(sequences.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](int x, int y) { return sequences[x].length > sequences[y].length; });
    lengths_.reserve(order_.size());
    for (const int index : order_) lengths_.push_back(sequences[index].length);
    corrections_.assign(corrections.begin(), corrections.end());
    corrections_.resize(pipelines.size(), 1.0);
    loads_.resize(pipelines.size());
    token_limits_.assign(pipelines.size(), std::numeric_limits<std::int64_t>::max());
    classes_.resize(pipelines.size());
    for (std::size_t k = 0; k < pipelines.size(); ++k) {
      std::size_t first = 0;
      while (!(pipelines[first].scheme == pipelines[k].scheme)) ++first;
      classes_[k] = static_cast<int>(first);
    }
  }

  const std::vector<Load>& loads() const { return loads_; }
  void restore(const std::vector<Load>& loads) { loads_ = loads; }
  void clear() {
    std::fill(loads_.begin(), loads_.end(), Load{});
    std::fill(token_limits_.begin(), token_limits_.end(), std::numeric_limits<std::int64_t>::max());
  }
  int scheme_class(int k) const { return classes_[k]; }

  /// Holds pipeline k to `micro_batches` full micro-batches and fills them with sequences that take
  /// `seconds` together: longest first, as long as the tokens left can still be used up by
  /// sequences of the least time per token. Returns which ranks it took.
  void fill(int k, std::int64_t micro_batches, double seconds, std::vector<char>& taken) {
    const PipelineCost& pipeline = pipelines_[k];
    std::int64_t tokens = micro_batches * pipeline.max_tokens;
    token_limits_[k] = tokens;
    double work = seconds - static_cast<double>(micro_batches) * pipeline.slowest.c;
    const std::int64_t shortest = lengths_.back();
    const double least_rate =
        pipeline.sequence_seconds(shortest) / static_cast<double>(pipeline.padded(shortest));
    for (std::size_t rank = 0; rank < lengths_.size(); ++rank) {
      if (taken[rank] != 0 || !fits(k, static_cast<int>(rank))) continue;
      const std::int64_t size = pipeline.padded(lengths_[rank]);
      const double time = pipeline.sequence_seconds(lengths_[rank]);
      if (size > tokens || work - time < least_rate * static_cast<double>(tokens - size)) continue;
      insert(k, static_cast<int>(rank));
      taken[rank] = 1;
      tokens -= size;
      work -= time;
    }
  }

  bool exhausted() const { return evaluations_left_ <= 0; }
  std::int64_t evaluations_left() const { return evaluations_left_; }
  std::size_t count() const { return lengths_.size(); }
  int original(int rank) const { return order_[static_cast<std::size_t>(rank)]; }

  double makespan() const {
    double slowest = 0;
    for (const Load& load : loads_) slowest = std::max(slowest, load.seconds);
    return slowest;
  }

  /// Places sequences one by one where they finish earliest; on ties the emptier pipeline. False
  /// when token limits leave no place for one.
  bool place(std::span<const int> ranks) {
    for (const int rank : ranks) {
      int best = -1;
      double best_seconds = 0;
      for (int k = 0; k < static_cast<int>(pipelines_.size()); ++k) {
        if (!fits(k, rank)) continue;
        const double seconds = with(k, -1, rank);
        if (!std::isfinite(seconds)) continue;
        if (best < 0 || seconds < best_seconds * (1 - 1e-12) ||
            (seconds <= best_seconds * (1 + 1e-12) &&
             loads_[k].ranks.size() < loads_[best].ranks.size())) {
          best = k;
          best_seconds = seconds;
        }
      }
      if (best < 0) return false;
      insert(best, rank);
    }
    return true;
  }

  /// Moves and swaps that lower the slowest pipeline, until none is found.
  void improve(double good_enough) {
    while (!exhausted()) {
      const int slowest = slowest_pipeline();
      if (loads_[slowest].seconds <= good_enough) return;
      if (!move_from(slowest) && !swap_with(slowest)) return;
    }
  }

  /// Takes random sequences off the slowest and some other pipelines and places them again.
  void ruin_and_recreate(Random& random) {
    const auto pipelines = static_cast<std::uint64_t>(pipelines_.size());
    std::vector<int> ruined = {slowest_pipeline()};
    const std::uint64_t others = std::min<std::uint64_t>(pipelines - 1, 3);
    while (ruined.size() < others + 1) {
      const int k = static_cast<int>(random.below(pipelines));
      if (std::find(ruined.begin(), ruined.end(), k) == ruined.end()) ruined.push_back(k);
    }
    std::vector<int> free;
    for (const int k : ruined) {
      const std::vector<int> ranks = loads_[k].ranks;
      for (const int rank : ranks) {
        if (random.below(2) == 0) {
          erase(k, rank);
          free.push_back(rank);
        }
      }
    }
    std::sort(free.begin(), free.end());
    place(free);
  }

  bool fits(int k, int rank) const {
    return pipelines_[k].padded(lengths_[rank]) <= pipelines_[k].max_tokens;
  }

  void insert(int k, int rank) {
    Load& load = loads_[k];
    const double seconds = with(k, -1, rank);
    load.work += pipelines_[k].sequence_seconds(lengths_[rank]);
    load.tokens += pipelines_[k].padded(lengths_[rank]);
    load.large += is_large(k, rank) ? 1 : 0;
    load.seconds = seconds;
    // Placement runs longest first, so the position is nearly always the end.
    auto at = load.ranks.end();
    while (at != load.ranks.begin() && *(at - 1) > rank) --at;
    load.ranks.insert(at, rank);
  }

 private:
  bool is_large(int k, int rank) const {
    return 2 * pipelines_[k].padded(lengths_[rank]) > pipelines_[k].max_tokens;
  }

  /// Estimated seconds of pipeline k without sequence `out` and with sequence `in` (-1: none).
  double with(int k, int out, int in) {
    --evaluations_left_;
    const PipelineCost& pipeline = pipelines_[k];
    const Load& load = loads_[k];
    double work = load.work;
    std::int64_t tokens = load.tokens;
    std::int64_t large = load.large;
    if (out >= 0) {
      work -= pipeline.sequence_seconds(lengths_[out]);
      tokens -= pipeline.padded(lengths_[out]);
      large -= is_large(k, out) ? 1 : 0;
    }
    if (in >= 0) {
      work += pipeline.sequence_seconds(lengths_[in]);
      tokens += pipeline.padded(lengths_[in]);
      large += is_large(k, in) ? 1 : 0;
    }
    // The longest of them; a single stage does not ask for more than one.
    std::array<double, 3> longest{};
    std::size_t known = 0;
    const std::size_t wanted = pipeline.scheme.pp > 1 ? longest.size() : 1;
    bool entered = in < 0;
    for (std::size_t at = 0; known < wanted && (at < load.ranks.size() || !entered);) {
      int rank = in;
      if (!entered && (at == load.ranks.size() || in < load.ranks[at])) {
        entered = true;
      } else {
        rank = load.ranks[at++];
        if (rank == out) continue;
      }
      longest[known++] = pipeline.sequence_seconds(lengths_[rank]);
    }
    if (known == 0) return 0;
    if (tokens > token_limits_[k]) return std::numeric_limits<double>::infinity();
    return corrections_[k] * estimate_pipeline_seconds(pipeline, std::max(work, 0.0), tokens,
                                                       std::span(longest.data(), known), large);
  }

  void refresh(int k) {
    Load& load = loads_[k];
    // Summed anew in a fixed order: no drift, and the same state always gives the same numbers.
    load.work = 0;
    load.tokens = 0;
    load.large = 0;
    for (const int rank : load.ranks) {
      load.work += pipelines_[k].sequence_seconds(lengths_[rank]);
      load.tokens += pipelines_[k].padded(lengths_[rank]);
      load.large += is_large(k, rank) ? 1 : 0;
    }
    load.seconds = with(k, -1, -1);
  }

  void erase(int k, int rank) {
    Load& load = loads_[k];
    load.ranks.erase(std::lower_bound(load.ranks.begin(), load.ranks.end(), rank));
    refresh(k);
  }

  int slowest_pipeline() const {
    int slowest = 0;
    for (int k = 1; k < static_cast<int>(loads_.size()); ++k) {
      if (loads_[k].seconds > loads_[slowest].seconds) slowest = k;
    }
    return slowest;
  }

  /// At most 48 sequences of a pipeline, no two of the same length, spread over its lengths.
  std::vector<int> candidates(int k) const {
    constexpr std::size_t kMost = 48;
    const auto& ranks = loads_[k].ranks;
    std::vector<int> result;
    const std::size_t step = std::max<std::size_t>(1, ranks.size() / kMost);
    for (std::size_t at = 0; at < ranks.size(); at += step) {
      if (result.empty() || lengths_[ranks[at]] != lengths_[result.back()]) {
        result.push_back(ranks[at]);
      }
    }
    return result;
  }

  /// The least loaded pipelines, at most a few of each scheme: moving to any other is never better.
  std::vector<int> targets(int from) const {
    constexpr int kMostPerScheme = 3;
    std::vector<int> order;
    for (int k = 0; k < static_cast<int>(loads_.size()); ++k) {
      if (k != from) order.push_back(k);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](int x, int y) { return loads_[x].seconds < loads_[y].seconds; });
    std::vector<int> taken(pipelines_.size(), 0);
    std::vector<int> result;
    for (const int k : order) {
      if (++taken[classes_[k]] <= kMostPerScheme) result.push_back(k);
    }
    return result;
  }

  bool move_from(int from) {
    const double now = loads_[from].seconds;
    double best = now * (1 - 1e-9);
    int best_to = -1;
    int best_rank = -1;
    const std::vector<int> to = targets(from);
    for (const int rank : candidates(from)) {
      const double left = with(from, rank, -1);
      if (left >= best) continue;
      for (const int k : to) {
        if (!fits(k, rank)) continue;
        const double seconds = std::max(left, with(k, -1, rank));
        if (seconds < best) {
          best = seconds;
          best_to = k;
          best_rank = rank;
        }
      }
    }
    if (best_to < 0) return false;
    erase(from, best_rank);
    insert(best_to, best_rank);
    return true;
  }

  bool swap_with(int from) {
    const double now = loads_[from].seconds;
    double best = now * (1 - 1e-9);
    int best_to = -1;
    int best_out = -1;
    int best_in = -1;
    const std::vector<int> to = targets(from);
    for (const int out : candidates(from)) {
      for (const int k : to) {
        if (!fits(k, out) || exhausted()) continue;
        const auto& ranks = loads_[k].ranks;
        // Shorter sequences come later in `ranks`. The shorter the one that comes back, the less
        // the slowest pipeline keeps and the more the other gains: look around the crossing.
        std::size_t low = static_cast<std::size_t>(
            std::upper_bound(ranks.begin(), ranks.end(), out) - ranks.begin());
        std::size_t high = ranks.size();
        const auto try_swap = [&](std::size_t at) {
          const int in = ranks[at];
          if (!fits(from, in) || lengths_[in] == lengths_[out]) return 0;
          const double here = with(from, out, in);
          const double there = with(k, in, out);
          const double seconds = std::max(here, there);
          if (seconds < best) {
            best = seconds;
            best_to = k;
            best_out = out;
            best_in = in;
          }
          return here > there ? 1 : -1;
        };
        while (low < high) {
          const std::size_t middle = (low + high) / 2;
          const int side = try_swap(middle);
          if (side == 0) {
            low = middle + 1;
          } else if (side > 0) {
            low = middle + 1;
          } else {
            high = middle;
          }
        }
      }
    }
    if (best_to < 0) return false;
    erase(from, best_out);
    erase(best_to, best_in);
    insert(from, best_in);
    insert(best_to, best_out);
    return true;
  }

  std::span<const PipelineCost> pipelines_;
  std::vector<int> order_;
  std::vector<std::int64_t> lengths_;
  std::vector<double> corrections_;
  std::vector<int> classes_;
  std::vector<Load> loads_;
  std::vector<std::int64_t> token_limits_;  ///< per pipeline, for variants that save a micro-batch
  std::int64_t evaluations_left_;
};

}  // namespace

double estimate_pipeline_seconds(const PipelineCost& pipeline, double work, std::int64_t tokens,
                                 std::span<const double> longest, std::int64_t large) {
  const std::int64_t fewest =
      std::max<std::int64_t>({1, large, (tokens + pipeline.max_tokens - 1) / pipeline.max_tokens});
  const double c = pipeline.slowest.c;
  const int stages = pipeline.scheme.pp;
  if (stages == 1) return work + static_cast<double>(fewest) * c;
  // More micro-batches mean less bubble and more constants: the sum has one valley.
  double best = std::numeric_limits<double>::infinity();
  constexpr std::int64_t kMostTried = 64;
  for (std::int64_t v = fewest; v < fewest + kMostTried; ++v) {
    const double seconds = least_makespan(stages, v, work + static_cast<double>(v) * c, longest);
    if (seconds >= best) break;
    best = seconds;
  }
  return std::max(best, stages * (longest.front() + c));
}

namespace {

/// Starts again from every way to place the few longest sequences, the others after them one by
/// one, and improves the best starts. Where they go decides how long the micro-batches of a
/// pipeline of stages are, and no move or swap of one sequence leads from one such way to another.
void place_longest(std::span<const PipelineCost> pipelines, double good_enough, Search& search,
                   std::vector<Load>& best, double& best_seconds) {
  constexpr int kMostPlaced = 4;
  // A start costs about one estimate a sequence and pipeline; a quarter of what is left may go
  // there.
  const auto start_cost = static_cast<std::int64_t>(search.count() * pipelines.size());
  const std::int64_t most_starts =
      std::min<std::int64_t>(64, search.evaluations_left() / (4 * start_cost));
  constexpr std::size_t kMostImproved = 3;
  if (std::all_of(pipelines.begin(), pipelines.end(),
                  [](const PipelineCost& pipeline) { return pipeline.scheme.pp == 1; })) {
    return;
  }
  const int count = static_cast<int>(pipelines.size());
  const int placed = static_cast<int>(std::min<std::size_t>(kMostPlaced, search.count()));
  std::vector<int> rest(search.count() - static_cast<std::size_t>(placed));
  std::iota(rest.begin(), rest.end(), placed);
  struct Start {
    double seconds;
    std::vector<Load> loads;
  };
  std::vector<Start> starts;
  std::vector<int> place_of(static_cast<std::size_t>(placed), -1);
  std::int64_t tried = 0;
  // Counts through the ways; of equal pipelines an empty one is entered in order only.
  const auto visit = [&](const auto& self, int rank) -> void {
    if (tried >= most_starts || search.exhausted()) return;
    if (rank == placed) {
      ++tried;
      search.clear();
      for (int r = 0; r < placed; ++r) search.insert(place_of[r], r);
      if (search.place(rest)) starts.push_back({search.makespan(), search.loads()});
      return;
    }
    std::vector<char> entered(static_cast<std::size_t>(count), 0);
    for (int k = 0; k < count; ++k) {
      if (!search.fits(k, rank)) continue;
      const bool empty =
          std::find(place_of.begin(), place_of.begin() + rank, k) == place_of.begin() + rank;
      char& alike = entered[search.scheme_class(k)];
      if (empty && alike != 0) continue;
      if (empty) alike = 1;
      place_of[rank] = k;
      self(self, rank + 1);
    }
  };
  visit(visit, 0);
  std::stable_sort(starts.begin(), starts.end(),
                   [](const Start& x, const Start& y) { return x.seconds < y.seconds; });
  for (std::size_t i = 0; i < std::min(starts.size(), kMostImproved); ++i) {
    if (best_seconds <= good_enough) return;
    search.restore(starts[i].loads);
    search.improve(good_enough);
    if (search.makespan() < best_seconds) {
      best = search.loads();
      best_seconds = search.makespan();
    }
  }
}

/// Starts again with the first few pipelines of a scheme held to one micro-batch fewer than they
/// have now and filled with long sequences: a whole constant is saved that single moves cannot
/// save.
void save_micro_batches(std::span<const PipelineCost> pipelines, double good_enough, double target,
                        Search& search, std::vector<Load>& best, double& best_seconds) {
  constexpr int kMostHeld = 4;
  const int count = static_cast<int>(pipelines.size());
  const std::vector<Load> base = best;
  for (int first = 0; first < count; ++first) {
    if (search.scheme_class(first) != first || pipelines[first].scheme.pp > 1) continue;
    std::vector<int> members;
    std::int64_t most = 0;
    for (int k = first; k < count; ++k) {
      if (search.scheme_class(k) != first) continue;
      members.push_back(k);
      most =
          std::max(most, (base[k].tokens + pipelines[k].max_tokens - 1) / pipelines[k].max_tokens);
    }
    if (most < 2) continue;
    for (int held = 1; held <= std::min<int>(kMostHeld, static_cast<int>(members.size())); ++held) {
      if (best_seconds <= good_enough || search.exhausted()) return;
      search.clear();
      std::vector<char> taken(search.count(), 0);
      for (int k = 0; k < held; ++k) search.fill(members[k], most - 1, target, taken);
      std::vector<int> rest;
      for (std::size_t rank = 0; rank < taken.size(); ++rank) {
        if (taken[rank] == 0) rest.push_back(static_cast<int>(rank));
      }
      if (!search.place(rest)) continue;
      search.improve(good_enough);
      if (search.makespan() < best_seconds) {
        best = search.loads();
        best_seconds = search.makespan();
      }
    }
  }
}

}  // namespace

Dispatching dispatch(std::span<const PipelineCost> pipelines, std::span<const Sequence> sequences,
                     std::span<const double> corrections, double lower_bound,
                     const DispatchEffort& effort) {
  Search search(pipelines, sequences, corrections, effort.evaluations);
  std::vector<int> all(search.count());
  std::iota(all.begin(), all.end(), 0);
  search.place(all);
  const double good_enough = lower_bound * effort.good_enough;
  search.improve(good_enough);
  std::vector<Load> best = search.loads();
  double best_seconds = search.makespan();
  const double target = std::min(best_seconds, lower_bound * 1.001);
  if (best_seconds > good_enough) {
    save_micro_batches(pipelines, good_enough, target, search, best, best_seconds);
    search.clear();
    place_longest(pipelines, good_enough, search, best, best_seconds);
    search.clear();
    search.restore(best);
  }
  Random random(sequences.size());
  for (int round = 0; round < effort.restarts && pipelines.size() > 1; ++round) {
    if (best_seconds <= good_enough || search.exhausted()) break;
    search.ruin_and_recreate(random);
    search.improve(good_enough);
    if (search.makespan() < best_seconds) {
      best = search.loads();
      best_seconds = search.makespan();
    } else {
      search.restore(best);
    }
  }
  Dispatching result;
  result.estimated_seconds = best_seconds;
  for (const Load& load : best) {
    auto& indices = result.sequences.emplace_back();
    for (const int rank : load.ranks) indices.push_back(search.original(rank));
  }
  return result;
}

}  // namespace hydraulis
