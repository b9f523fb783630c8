#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/plan_json.h"

namespace hydraulis {

/// What a plan is made from: names as a user gives them.
struct PlanRequest {
  std::string model;
  std::string cluster;
  std::string profile;                      ///< empty: the one that fits model and cluster
  std::optional<MemoryModel> memory_model;  ///< unset: what the profile supports
  SchemeSpace schemes;                      ///< to consider beside the profile's
  std::uint64_t context = 0;                ///< tokens
  std::uint64_t tokens_per_batch = 0;       ///< 0: unscaled histogram
  std::int64_t max_tokens = 0;              ///< cap on a micro-batch, 0: none
  std::string strategies;                   ///< given by hand; empty: proposed from the trace
  std::string optimizer_layout;             ///< "dp,tp,pp"; empty: found
  OptimizerStates optimizer_states = OptimizerStates::device;
  /// Parameters and gradients will move beside the computation, so that a set is chosen with what
  /// is not hidden in view (AssignmentOptions::traffic_overlaps).
  bool traffic_overlaps = false;
};

/// A plan and what is worth saying beside it.
struct PlanResult {
  Plan plan;
  CostModel model;
  std::vector<std::string> notes;
  std::vector<std::string> unused_schemes;  ///< each with its reason
};

/// Proposes a strategy set for the trace, or takes the strategies given by hand (then `trace` may
/// be null; the first homogeneous one over all devices is the optimizer layout unless that is
/// given). Throws InputError, or InfeasibleError when a given strategy does not fit the cluster or
/// nothing holds the context.
PlanResult make_plan(const PlanRequest& request, const LengthTrace* trace);

/// The same for a system that was put together already; the request's names of it are only noted in
/// the plan. No profile: the one that fits model and cluster.
PlanResult make_plan(const PlanRequest& request, const ModelSpec& model, const ClusterSpec& cluster,
                     const std::optional<Profile>& profile, const LengthTrace* trace);

/// The cost model a plan was made with, from the names it holds. `where` names the plan's file in
/// errors.
CostModel cost_model_of(const Plan& plan, const std::string& where);

/// What people should know of a cost model's numbers: analytic or measured, origin, limits.
std::vector<std::string> provenance(const CostModel& model);

/// Adds a note when the context is beyond what the profile's times were measured on.
void note_extrapolation(PlanResult& result);

}  // namespace hydraulis
