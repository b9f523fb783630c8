#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "planner/policy.h"

namespace hydraulis {

/// Pipeline costs by scheme, worked out when first asked for.
class PipelineCostTable {
 public:
  /// `model` must outlive it; `max_tokens_cap` (0: none) limits micro-batches further.
  PipelineCostTable(const CostModel& model, std::int64_t max_tokens_cap)
      : model_(model), cap_(max_tokens_cap) {}
  /// Throws InputError when the profile does not know the scheme.
  const PipelineCost& of(const Scheme& scheme);

 private:
  const CostModel& model_;
  std::int64_t cap_;
  std::map<Scheme, PipelineCost> costs_;
};

/// Adds a sequence with the padding that context parallelism needs.
void add_sequence(MicroBatch& micro_batch, const Sequence& sequence, const PipelineCost& pipeline);

/// By length, descending; equal ones as they were drawn.
std::vector<Sequence> longest_first(std::span<const Sequence> sequences);

/// Throws InfeasibleError naming the first sequence longer than what `holder` holds.
void expect_at_most(std::span<const Sequence> sequences, std::int64_t tokens,
                    const std::string& holder);

/// Fills in the times of pipelines and the makespan (BatchPlan says how it adds up).
void fill_times(BatchPlan& plan, const CostModel& model, PipelineCostTable& costs);

/// A policy that lays out devices by itself, perhaps anew for every iteration: keeps the cost
/// model, its pipeline costs and the list of strategies met so far.
class OwnGroups : public Policy {
 public:
  OwnGroups(CostModel model, std::int64_t max_tokens_cap)
      : model_(std::move(model)), costs_(model_, max_tokens_cap) {}
  OwnGroups(const OwnGroups&) = delete;
  OwnGroups& operator=(const OwnGroups&) = delete;

  BatchPlan plan(std::span<const Batch> window) final;
  const CostModel& cost_model() const final { return model_; }
  const std::vector<Strategy>& strategies() const final { return strategies_; }
  std::string remark() const override { return remark_; }

 protected:
  /// Pipelines with their micro-batches; plan() adds times and the strategy's number.
  virtual BatchPlan group(std::span<const Batch> window) = 0;

  CostModel model_;
  PipelineCostTable costs_;
  std::string remark_;

 private:
  std::vector<Strategy> strategies_;
};

}  // namespace hydraulis
