#include "planner/schedule_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace hydraulis {

void put_under_schedule(BatchPlan& plan, const CostModel& model, const ScheduleChoice& choice,
                        std::int64_t steps) {
  // Sharded parameters: single stages in step with one another, which no schedule changes.
  if (choice.schedule == Schedule::one_f_one_b || model.sharding == ParameterSharding::sharded) {
    return;
  }
  std::vector<double> slowest(static_cast<std::size_t>(plan.phases()), 0);
  for (PipelinePlan& pipeline : plan.pipelines) {
    const ScheduleChoice own = on_scheme(choice, pipeline.scheme);
    const ScheduleWork work = schedule_work(model, pipeline.scheme, pipeline.micro_batches, own);
    const OrderedSchedule ordered = order_for_schedule(own, work, steps);
    std::vector<MicroBatch> batches;
    batches.reserve(ordered.order.size());
    for (const int j : ordered.order) {
      batches.push_back(std::move(pipeline.micro_batches[static_cast<std::size_t>(j)]));
    }
    pipeline.micro_batches = std::move(batches);
    pipeline.time_seconds = ordered.makespan;
    double& phase = slowest[static_cast<std::size_t>(pipeline.phase)];
    phase = std::max(phase, pipeline.time_seconds);
  }
  plan.makespan_seconds = std::accumulate(slowest.begin(), slowest.end(), 0.0);
  plan.lower_bound_seconds = 0;
  plan.set_lower_bound_seconds = 0;
}

}  // namespace hydraulis
