#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "costmodel/scheme_space.h"
#include "planner/proposal.h"
#include "planner/schedule_choice.h"

namespace hydraulis {

/// A plan file: the strategy set and everything that assigning or simulating with it needs.
struct Plan {
  StrategySet set;
  std::vector<SchemeOption> schemes;
  std::string model;                   ///< preset or path, as given to --model
  std::string cluster;                 ///< preset or path, as given to --cluster
  std::string profile;                 ///< preset or path, as given to --profile
  std::string memory_model;            ///< "published" or "composed"
  SchemeSpace scheme_space;            ///< derived schemes beside the profile's
  std::uint64_t context = 0;           ///< tokens
  std::uint64_t tokens_per_batch = 0;  ///< 0: not planned for a certain batch
  double proposal_seconds = 0;         ///< measured
  ScheduleChoice schedule;             ///< of the pipelines, when iterations are run
  OptimizerStates optimizer_states = OptimizerStates::device;
};

/// {"model", "cluster", "profile", "memory_model", "scheme_space"?, "context", "tokens_per_batch",
///  "schemes": [{"cp", "tp", "pp", "recompute"?, "layers"?, "max_tokens",
///               "seconds_per_squared_token", "seconds_per_token", "seconds_per_micro_batch"}…],
///  "strategies": [[{"cp", "tp", "pp", "recompute"?, "layers"?}…]…],
///  "optimizer_layout": {"dp", "tp", "pp"}, "optimizer_states"?, "schedule"?,
///  "proposal_seconds"}
///
/// `scheme_space` ("cp,recompute,layers" or a part) is left out when it is empty, `recompute` when
/// it is "none", `layers` when they are split evenly, `optimizer_states` when they are on the
/// devices, `schedule` when it is 1f1b, `proposal_seconds` when `reproducible`.
Json to_json(const Plan& plan, bool reproducible);

/// Reads a plan; `where` names the file in messages. Throws InputError naming the field for
/// anything missing, unknown, out of range or contradictory.
Plan plan_from_json(const Json& json, const std::string& where);

}  // namespace hydraulis
