#pragma once

#include <functional>
#include <string>

#include "planner/policy.h"

namespace hydraulis {

/// A homogeneous layout over the whole cluster, with its own optimizer layout, ready to plan on.
struct HomogeneousLayout {
  CostModel model;
  PreparedStrategies prepared;  ///< one strategy
  std::string remark;           ///< the layout and what was tried
};

/// The setup with context parallelism by rings of 2, 4 and 8 where the profile does not know it.
PolicySetup with_rings(PolicySetup setup);

/// Plans one batch on a layout's only strategy.
using LayoutPlanner = std::function<BatchPlan(std::span<const Sequence>, const HomogeneousLayout&)>;

/// Tries every scheme the profile knows that divides the cluster and holds the context, plans up to
/// 16 of the setup's batches on each, and keeps the layout with the least total time. Schemes whose
/// lower bound already exceeds the best are not planned. Throws InfeasibleError when no layout
/// holds the context: says which comes closest and what would fit.
HomogeneousLayout best_homogeneous_layout(const PolicySetup& setup, const LayoutPlanner& planner);

}  // namespace hydraulis
