#include <fmt/format.h>

#include <limits>

#include "base/error.h"
#include "planner/policies/policies.h"
#include "planner/policies/ring_groups.h"
#include "planner/policies/sharded_layout.h"

namespace hydraulis {
namespace {

/// The tensor-parallel degree whose groups have the least total time on the tuning batches.
RingRanks best_ranks(const PolicySetup& setup) {
  RingRanks best;
  double best_seconds = std::numeric_limits<double>::infinity();
  const auto batches = tuning_batches(setup);
  for (RingRanks& ranks : ring_ranks(setup, false)) {
    double seconds = 0;
    for (const auto& batch : batches) {
      const auto solved = solve_groups(longest_first(batch), ranks.kinds, ranks.ranks, false);
      seconds += solved ? solved->seconds : std::numeric_limits<double>::infinity();
    }
    if (seconds < best_seconds) {
      best_seconds = seconds;
      best = std::move(ranks);
    }
  }
  if (best.kinds.empty()) {
    throw InfeasibleError("infeasible: no grouping of {} devices trains the batches of the run",
                          setup.model.cluster.devices());
  }
  return best;
}

class ByteScale : public OwnGroups {
 public:
  explicit ByteScale(const PolicySetup& setup) : ByteScale(setup, best_ranks(setup)) {}

 protected:
  BatchPlan group(std::span<const Batch> window) override {
    const std::vector<Sequence> sequences = longest_first(sequences_of(window.front()));
    const auto solved = solve_groups(sequences, ranks_.kinds, ranks_.ranks, false);
    if (!solved) {
      throw InfeasibleError("infeasible: the batch's longest sequences need more than {} ranks",
                            ranks_.ranks);
    }
    BatchPlan plan;
    add_groups(plan, ranks_, sequences, solved->groups, 0, costs_);
    return plan;
  }

 private:
  ByteScale(const PolicySetup& setup, RingRanks ranks)
      : OwnGroups(ranks.model, setup.assignment.max_tokens), ranks_(std::move(ranks)) {
    remark_ = fmt::format("{} ranks of {} devices, joined into rings of any size", ranks_.ranks,
                          ranks_.tp);
  }

  RingRanks ranks_;
};

}  // namespace

std::unique_ptr<Policy> make_bytescale(const PolicySetup& setup) {
  return std::make_unique<ByteScale>(setup);
}

}  // namespace hydraulis
