#pragma once

#include <span>
#include <vector>

#include "costmodel/cost_model.h"
#include "planner/pipeline_cost.h"

namespace hydraulis {

/// Makespan of 1F1B over `order.size()` micro-batches, by the schedule's own recurrence and without
/// transfer time: stage i runs min(pp−1−i, m) warm-up forwards, then one forward and one backward
/// in turn, then the remaining backwards. `seconds(stage, micro_batch)` is forward plus backward,
/// of which kForwardShare is forward.
///
/// This variant takes the same time on every stage; `seconds` is in the order the micro-batches
/// run.
class OneForwardOneBackward {
 public:
  explicit OneForwardOneBackward(int stages) : stages_(stages) {}
  /// Seconds of the whole schedule. Reuses its buffers: not thread-safe.
  double makespan(std::span<const double> seconds);
  /// The same where stages differ: seconds[stage · m + micro_batch].
  double makespan_by_stage(std::span<const double> seconds, int micro_batches);

 private:
  int stages_;
  std::vector<double> by_stage_;
  std::vector<double> forward_end_;
  std::vector<double> backward_end_;
};

/// Seconds of a packed pipeline in the order its micro-batches stand.
double pipeline_makespan(const PipelineCost& pipeline, std::span<const MicroBatch> micro_batches);

/// Chooses the order of unequal micro-batches for the 1F1B makespan: several sorted and ramped
/// orders (small micro-batches at both ends shorten warm-up and drain), then swaps while they help,
/// at most `work` schedule evaluations. Returns indices into `seconds`, and the makespan through
/// `best`.
std::vector<int> order_micro_batches(std::span<const double> seconds, int stages, int work,
                                     double* best);

}  // namespace hydraulis
