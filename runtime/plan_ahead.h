#pragma once

#include <future>
#include <memory>
#include <string>

#include "planner/policy.h"
#include "runtime/tensor.h"

namespace hydraulis {

/// Plans the next batch while the current one trains: rank 0 plans in a thread of its own and tells
/// the others, so all ranks have one plan whatever their planners would find. Planning is bounded
/// by work; a step whose plan is not there yet waits for it and the time is reported.
class PlanAhead {
 public:
  /// Rank 0 makes the policy; `setup` is not used elsewhere, and remark() is empty there. All ranks
  /// call it together and throw what it throws on rank 0.
  PlanAhead(const Backend& backend, const std::string& policy, const PolicySetup& setup);
  ~PlanAhead();

  /// Starts planning a batch; one at a time.
  void start(const Batch& batch);
  /// The plan of the batch last started, on all ranks together. Throws InfeasibleError or
  /// InputError on every rank when it cannot be planned.
  BatchPlan take();

  /// Seconds that the last take() waited for the planner.
  double waited_seconds() const { return waited_seconds_; }
  const std::string& remark() const { return remark_; }
  /// The optimizer layout that the policy's plans are made for.
  const OptimizerLayout& optimizer() const { return optimizer_; }

 private:
  Backend backend_;
  std::unique_ptr<Policy> policy_;
  std::future<BatchPlan> planned_;
  std::string remark_;
  OptimizerLayout optimizer_;
  double waited_seconds_ = 0;
};

}  // namespace hydraulis
