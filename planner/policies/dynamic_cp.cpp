#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "planner/policies/policies.h"
#include "planner/policies/ring_groups.h"
#include "planner/policies/sharded_layout.h"

namespace hydraulis {
namespace {

/// How much longer than its longest sequence a round may get.
constexpr double kSlack = 1.05;

/// Groups that run at the same time, and the sequences they take, by index.
using Round = std::vector<SolvedGroup>;

double work(const GroupKind& kind, std::int64_t length) {
  const auto s = static_cast<double>(length);
  return kind.cost.a * s * s + kind.cost.b * static_cast<double>(kind.padded(length));
}

/// The smallest ring that holds a sequence.
std::size_t kind_of(const RingRanks& ranks, std::int64_t length) {
  std::size_t kind = 0;
  while (kind < ranks.kinds.size() &&
         ranks.kinds[kind].padded(length) > ranks.kinds[kind].max_tokens) {
    ++kind;
  }
  return kind;
}

/// Rounds over sequences that descend in length; empty when one of them fits no ring.
std::vector<Round> plan_rounds(std::span<const Sequence> sequences, const RingRanks& ranks,
                               double& seconds) {
  std::vector<Round> rounds;
  seconds = 0;
  std::vector<int> left(sequences.size());
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = static_cast<int>(i);
  while (!left.empty()) {
    double longest = 0;
    for (const int i : left) {
      const std::size_t kind = kind_of(ranks, sequences[i].length);
      if (kind == ranks.kinds.size()) return {};
      longest = std::max(longest, work(ranks.kinds[kind], sequences[i].length));
    }
    // The last round takes everything that is left, however short each sequence is.
    const bool whole = kind_of(ranks, sequences[left.front()].length) == 0;
    const double limit = whole ? std::numeric_limits<double>::infinity() : kSlack * longest;
    Round round;
    std::vector<double> loads;
    std::vector<int> next;
    int used = 0;
    for (const int i : left) {
      const std::size_t need = kind_of(ranks, sequences[i].length);
      std::size_t to = round.size();
      for (std::size_t g = 0; g < round.size(); ++g) {
        const GroupKind& kind = ranks.kinds[round[g].kind];
        if (round[g].kind < need || loads[g] + work(kind, sequences[i].length) > limit) continue;
        if (to == round.size() || round[g].kind < round[to].kind ||
            (round[g].kind == round[to].kind && loads[g] < loads[to])) {
          to = g;
        }
      }
      const bool may_open = used + ranks.kinds[need].size <= ranks.ranks;
      if (may_open && (to == round.size() || round[to].kind != need || whole)) {
        to = round.size();
        round.push_back({need, {}});
        loads.push_back(0);
        used += ranks.kinds[need].size;
      }
      if (to == round.size()) {
        next.push_back(i);
        continue;
      }
      round[to].sequences.push_back(i);
      loads[to] += work(ranks.kinds[round[to].kind], sequences[i].length);
    }
    std::stable_sort(round.begin(), round.end(), [&](const SolvedGroup& a, const SolvedGroup& b) {
      return ranks.kinds[a.kind].size > ranks.kinds[b.kind].size;
    });
    seconds += loads.empty() ? 0 : *std::max_element(loads.begin(), loads.end());
    rounds.push_back(std::move(round));
    left = std::move(next);
  }
  return rounds;
}

RingRanks best_ranks(const PolicySetup& setup) {
  RingRanks best;
  double best_seconds = std::numeric_limits<double>::infinity();
  for (RingRanks& ranks : ring_ranks(setup, true)) {
    double total = 0;
    for (const auto& batch : tuning_batches(setup)) {
      double seconds = 0;
      const bool planned = !plan_rounds(longest_first(batch), ranks, seconds).empty();
      total += planned ? seconds : std::numeric_limits<double>::infinity();
    }
    if (total < best_seconds) {
      best_seconds = total;
      best = std::move(ranks);
    }
  }
  if (best.kinds.empty()) {
    throw InfeasibleError("infeasible: no grouping of {} devices trains the batches of the run",
                          setup.model.cluster.devices());
  }
  return best;
}

class DynamicCp : public OwnGroups {
 public:
  explicit DynamicCp(const PolicySetup& setup) : DynamicCp(setup, best_ranks(setup)) {}

 protected:
  BatchPlan group(std::span<const Batch> window) override {
    const std::vector<Sequence> sequences = longest_first(sequences_of(window.front()));
    double seconds = 0;
    BatchPlan plan;
    int phase = 0;
    for (const Round& round : plan_rounds(sequences, ranks_, seconds)) {
      add_groups(plan, ranks_, sequences, round, phase++, costs_);
    }
    if (phase == 0) {
      throw InfeasibleError(
          "infeasible: a sequence of the batch is longer than a ring of {} ranks "
          "holds",
          ranks_.ranks);
    }
    return plan;
  }

 private:
  DynamicCp(const PolicySetup& setup, RingRanks ranks)
      : OwnGroups(ranks.model, setup.assignment.max_tokens), ranks_(std::move(ranks)) {
    remark_ = fmt::format("{} ranks of {} devices, rings of 1 to {} ranks in rounds", ranks_.ranks,
                          ranks_.tp, ranks_.kinds.back().size);
  }

  RingRanks ranks_;
};

}  // namespace

std::unique_ptr<Policy> make_dynamic_cp(const PolicySetup& setup) {
  return std::make_unique<DynamicCp>(setup);
}

}  // namespace hydraulis
