#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "planner/assignment.h"
#include "planner/batch_plan.h"
#include "traces/sampler.h"

namespace hydraulis {

/// What a policy is made for.
struct PolicySetup {
  CostModel model;           ///< with the plan's optimizer layout
  StrategySet set;           ///< proposed strategies; policies with a layout of their own ignore it
  std::int64_t context = 0;  ///< longest sequence that must be trainable, tokens
  AssignmentOptions assignment;
  /// What an iteration takes longer when its strategy is not that of the one before, beside the
  /// parameter traffic that every iteration has: seconds.
  double switch_seconds = 0;
  /// Batches that a layout may be tuned on: taken evenly from the run's own, so that a static
  /// baseline is as good as it can be made.
  std::span<const Batch> batches;
};

/// A system that plans iterations: Hydraulis or one it is compared with. A window of batches goes
/// in (the first is due now, the others follow), the due iteration's plan comes out; state carried
/// from one call to the next is the object's own.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual BatchPlan plan(std::span<const Batch> window) = 0;
  /// Batches after the due one that plan() wants to see; fewer come at the end of a run.
  virtual std::size_t lookahead() const { return 0; }
  /// The cost model its plans are made and must be executed with.
  virtual const CostModel& cost_model() const = 0;
  /// Grows where strategies are made up on the way. A plan's number is that of its last phase's.
  virtual const std::vector<Strategy>& strategies() const = 0;
  /// Beside results: the layout it found and what it could not try; after a run, what it delayed.
  virtual std::string remark() const { return {}; }
  /// Whether sequences may be trained in another iteration than they were drawn for.
  virtual bool reorders_data() const { return false; }
};

struct PolicyInfo {
  const char* name;
  const char* summary;  ///< one line for --help
  std::unique_ptr<Policy> (*make)(const PolicySetup& setup);
  /// Whether the runtime executes its programs: no sharded parameters, each batch trained when it
  /// is drawn.
  bool trainable = true;
  /// Whether it lays pipelines over node groups of unlike devices (ClusterSpec::groups).
  bool unlike_nodes = false;
};

/// Every policy, in the order of their help.
std::span<const PolicyInfo> policies();

/// The policy of that name. Throws InputError for an unknown one, listing those that are known.
const PolicyInfo& policy_info(const std::string& name);

/// Throws what policy_info() throws, and InfeasibleError when the policy has no layout for the
/// context or none for unlike nodes.
std::unique_ptr<Policy> make_policy(const std::string& name, const PolicySetup& setup);

/// The sequences of a batch that have tokens; those of length 0 train nothing.
std::vector<Sequence> sequences_of(const Batch& batch);

}  // namespace hydraulis
