#pragma once

#include "planner/policies/homogeneous.h"

namespace hydraulis {

/// A policy that keeps one homogeneous layout, found at the start, and plans every batch on it.
class StaticLayout : public Policy {
 public:
  StaticLayout(const PolicySetup& setup, LayoutPlanner planner)
      : planner_(std::move(planner)), layout_(best_homogeneous_layout(setup, planner_)) {}

  BatchPlan plan(std::span<const Batch> window) override;
  const CostModel& cost_model() const override { return layout_.model; }
  const std::vector<Strategy>& strategies() const override { return layout_.prepared.strategies; }
  std::string remark() const override { return layout_.remark; }

 private:
  LayoutPlanner planner_;
  HomogeneousLayout layout_;
};

/// Finished micro-batches dealt round robin over the layout's pipelines, with times and bounds.
BatchPlan deal_round_robin(std::vector<MicroBatch> micro_batches,
                           std::span<const Sequence> sequences, const HomogeneousLayout& layout);

}  // namespace hydraulis
