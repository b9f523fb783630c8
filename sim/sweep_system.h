#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "planner/plan_build.h"
#include "sim/run_policy.h"
#include "sim/sweep.h"

namespace hydraulis::detail {

/// A point of a sweep with its names looked up and its numbers checked.
struct SweepSystem {
  PlanRequest request;
  ModelSpec model;
  ClusterSpec cluster;
  std::optional<Profile> profile;
  std::string trace;  ///< key of the trace: what load_sweep_trace() makes it from
  std::string policy;
  SamplerOptions sampling;
  std::uint64_t iterations = 0;
  CostingOptions costing;
  Variance variance;
  Overlap overlap = Overlap::off;
  std::optional<std::uint64_t> keep_iteration;
  /// Everything above as JSON: equal settings, equal results.
  Json settings;
  /// The part that planning depends on: points that differ in nothing of it share a plan.
  std::string plan_key;
};

/// Throws InputError for fields that make no system.
SweepSystem sweep_system(const Sweep& sweep, const SweepPoint& point);

/// The trace of a point (SweepSystem::trace).
LengthTrace load_sweep_trace(const std::string& key, const std::string& where);

}  // namespace hydraulis::detail
