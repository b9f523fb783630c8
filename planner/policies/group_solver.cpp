#include "planner/policies/group_solver.h"

#include <algorithm>
#include <limits>

namespace hydraulis {
namespace {

constexpr int kBisections = 28;
constexpr int kDoublings = 12;

struct Open {
  SolvedGroup group;
  std::int64_t tokens = 0;
  double work = 0;  ///< seconds without the constant of micro-batches
};

class Filler {
 public:
  Filler(std::span<const Sequence> sequences, std::span<const GroupKind> kinds, int units,
         bool one_micro_batch)
      : sequences_(sequences), kinds_(kinds), units_(units), one_(one_micro_batch) {}

  /// The solution in which no group takes longer than `limit`, or nothing.
  std::optional<GroupSolution> within(double limit) const {
    std::vector<Open> open;
    int used = 0;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      const std::int64_t length = sequences_[i].length;
      Open* best = nullptr;
      for (Open& candidate : open) {
        if (!takes(candidate, length, limit)) continue;
        const bool smaller =
            best == nullptr || kinds_[candidate.group.kind].size < kinds_[best->group.kind].size;
        const bool fuller = best != nullptr && candidate.group.kind == best->group.kind &&
                            candidate.work > best->work;
        if (smaller || fuller) best = &candidate;
      }
      if (best == nullptr) {
        std::size_t kind = 0;
        for (; kind < kinds_.size(); ++kind) {
          if (takes({{kind, {}}}, length, limit)) break;
        }
        if (kind == kinds_.size() || used + kinds_[kind].size > units_) return std::nullopt;
        used += kinds_[kind].size;
        best = &open.emplace_back(Open{{kind, {}}});
      }
      add(*best, static_cast<int>(i), length);
    }
    GroupSolution solution;
    for (Open& group : open) {
      solution.seconds = std::max(solution.seconds, seconds(group));
      solution.groups.push_back(std::move(group.group));
    }
    std::stable_sort(solution.groups.begin(), solution.groups.end(),
                     [&](const SolvedGroup& a, const SolvedGroup& b) {
                       return kinds_[a.kind].size > kinds_[b.kind].size;
                     });
    return solution;
  }

  /// No solution is faster: the slowest sequence on the kind that suits it best.
  double least_seconds() const {
    double least = 0;
    for (const Sequence& sequence : sequences_) {
      double best = std::numeric_limits<double>::infinity();
      for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
        if (kinds_[kind].size > units_ ||
            kinds_[kind].padded(sequence.length) > kinds_[kind].max_tokens) {
          continue;
        }
        best = std::min(best, work(kinds_[kind], sequence.length) + kinds_[kind].cost.c);
      }
      least = std::max(least, best);
    }
    return least;
  }

 private:
  static double work(const GroupKind& kind, std::int64_t length) {
    const auto s = static_cast<double>(length);
    return kind.cost.a * s * s + kind.cost.b * static_cast<double>(kind.padded(length));
  }

  double seconds(const Open& group) const {
    const GroupKind& kind = kinds_[group.group.kind];
    const std::int64_t batches =
        one_ ? 1
             : std::max<std::int64_t>(1, (group.tokens + kind.max_tokens - 1) / kind.max_tokens);
    return group.work + static_cast<double>(batches) * kind.cost.c;
  }

  bool takes(const Open& group, std::int64_t length, double limit) const {
    const GroupKind& kind = kinds_[group.group.kind];
    const std::int64_t size = kind.padded(length);
    if (size > kind.max_tokens) return false;
    if (one_ && group.tokens + size > kind.max_tokens) return false;
    Open with{{group.group.kind, {}}, group.tokens + size, group.work + work(kind, length)};
    return seconds(with) <= limit;
  }

  void add(Open& group, int index, std::int64_t length) const {
    const GroupKind& kind = kinds_[group.group.kind];
    group.group.sequences.push_back(index);
    group.tokens += kind.padded(length);
    group.work += work(kind, length);
  }

  std::span<const Sequence> sequences_;
  std::span<const GroupKind> kinds_;
  int units_;
  bool one_;
};

}  // namespace

std::optional<GroupSolution> solve_groups(std::span<const Sequence> sequences,
                                          std::span<const GroupKind> kinds, int units,
                                          bool one_micro_batch) {
  if (sequences.empty()) return GroupSolution{};
  const Filler filler(sequences, kinds, units, one_micro_batch);
  double low = filler.least_seconds();
  if (low == std::numeric_limits<double>::infinity()) return std::nullopt;
  auto best = filler.within(low);
  if (best) return best;
  double high = low;
  for (int i = 0; i < kDoublings && !best; ++i) {
    low = high;
    high *= 2;
    best = filler.within(high);
  }
  if (!best) {
    // Only memory stands in the way: without a limit, then without the smallest groups, whose rest
    // holds less.
    auto loose = filler.within(std::numeric_limits<double>::infinity());
    if (loose || kinds.size() == 1) return loose;
    loose = solve_groups(sequences, kinds.subspan(1), units, one_micro_batch);
    if (loose) {
      for (SolvedGroup& group : loose->groups) ++group.kind;
    }
    return loose;
  }
  for (int i = 0; i < kBisections; ++i) {
    const double middle = (low + high) / 2;
    auto found = filler.within(middle);
    if (found) {
      best = std::move(found);
      high = std::min(middle, best->seconds);
    } else {
      low = middle;
    }
    if (high - low <= 1e-6 * high) break;
  }
  return best;
}

}  // namespace hydraulis
