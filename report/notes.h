#pragma once

#include <string>
#include <vector>

#include "planner/plan_build.h"
#include "sim/costing.h"
#include "sim/provenance.h"

namespace hydraulis {

/// Lines beside results: those that everybody sees, and origins and limits that are there for who
/// asks (and always in JSON).
struct Notes {
  std::vector<std::string> brief;
  std::vector<std::string> details = {};
  bool verbose = false;
  std::vector<Source> sources = {};  ///< of the numbers; JSON: "provenance"

  /// Brief ones with the kinds of source in one line (sources_line); when verbose all of them and
  /// each source in full.
  std::vector<std::string> shown() const;
  std::vector<std::string> all() const;
};

/// How a result's system was named.
struct SystemChoice {
  bool default_model = false;    ///< not given by the user
  bool default_cluster = false;  ///< not given by the user
};

/// Where a result's numbers come from. Brief: one line with model, cluster, profile, which
/// communication its times contain and, with `costing`, the network assumed; one more for each
/// mismatch or figure that looks wrong. Details: origin of every figure and the limits. Sources:
/// sources_of().
Notes provenance_notes(const PlanResult& plan, const SystemChoice& choice,
                       const CostingOptions* costing = nullptr);

/// Devices of the cluster that each strategy leaves unused.
std::vector<int> unused_devices(const std::vector<Strategy>& strategies, int devices);
/// One line about them, or "" when every strategy uses all.
std::string unused_devices_note(const std::vector<Strategy>& strategies, int devices);

}  // namespace hydraulis
