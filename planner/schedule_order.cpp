#include "planner/schedule_order.h"

#include <algorithm>
#include <limits>

#include "planner/schedule_list.h"

namespace hydraulis {
namespace {

std::vector<ComputeStep> in_turn(int ahead, int micro_batches) {
  std::vector<ComputeStep> steps;
  steps.reserve(2 * static_cast<std::size_t>(micro_batches));
  for (int i = 0; i < ahead; ++i) steps.push_back({Pass::forward, i});
  for (int i = ahead; i < micro_batches; ++i) {
    steps.push_back({Pass::forward, i});
    steps.push_back({Pass::backward, i - ahead});
  }
  for (int i = micro_batches - ahead; i < micro_batches; ++i) steps.push_back({Pass::backward, i});
  return steps;
}

std::vector<ComputeStep> zero_bubble_h1(int stages, int stage, int micro_batches) {
  const int ahead = std::min(stages - 1 - stage, micro_batches);
  std::vector<ComputeStep> steps;
  int weights = 0;
  for (ComputeStep step : in_turn(ahead, micro_batches)) {
    if (step.pass == Pass::backward) step.pass = Pass::backward_input;
    steps.push_back(step);
    if (step.pass != Pass::backward_input) continue;
    // Behind the last forward nothing new comes alive, and the first stages have no work between
    // the backwards that come back to them.
    const bool drains = step.micro_batch + ahead >= micro_batches - 1;
    const int lag = drains ? std::min(stage, micro_batches - 1 - step.micro_batch) : stage;
    if (step.micro_batch - lag >= weights) steps.push_back({Pass::backward_weight, weights++});
  }
  while (weights < micro_batches) steps.push_back({Pass::backward_weight, weights++});
  return steps;
}

/// (chunk, micro-batch) in the order of the forwards.
std::vector<ComputeStep> chunk_order(int chunks, int groups, int micro_batches, Pass pass) {
  std::vector<ComputeStep> order;
  int begin = 0;
  for (int group = 0; group < groups; ++group) {
    const int end =
        static_cast<int>(static_cast<std::int64_t>(micro_batches) * (group + 1) / groups);
    for (int c = 0; c < chunks; ++c) {
      const int chunk = pass == Pass::forward ? c : chunks - 1 - c;
      for (int j = begin; j < end; ++j) order.push_back({pass, j, chunk});
    }
    begin = end;
  }
  return order;
}

std::vector<ComputeStep> interleaved(int chunks, int stages, int stage, int micro_batches) {
  const int total = chunks * micro_batches;
  const int groups = std::max(1, micro_batches / stages);
  const int largest = (micro_batches + groups - 1) / groups;
  const auto forwards = chunk_order(chunks, groups, micro_batches, Pass::forward);
  const auto backwards = chunk_order(chunks, groups, micro_batches, Pass::backward);
  const int ahead = micro_batches < stages
                        ? total
                        : std::min(total, 2 * (stages - 1 - stage) + (chunks - 1) * largest);
  std::vector<ComputeStep> steps(forwards.begin(), forwards.begin() + ahead);
  for (int i = ahead; i < total; ++i) {
    steps.push_back(forwards[static_cast<std::size_t>(i)]);
    steps.push_back(backwards[static_cast<std::size_t>(i - ahead)]);
  }
  steps.insert(steps.end(), backwards.begin() + (total - ahead), backwards.end());
  return steps;
}

}  // namespace

std::vector<ComputeStep> schedule_order(const ScheduleChoice& choice, int stages, int stage,
                                        int micro_batches) {
  switch (choice.schedule) {
    case Schedule::gpipe:
      return in_turn(micro_batches, micro_batches);
    case Schedule::zero_bubble_h1:
      return zero_bubble_h1(stages, stage, micro_batches);
    case Schedule::interleaved:
      return interleaved(choice.chunks, stages, stage, micro_batches);
    default:
      return in_turn(std::min(stages - 1 - stage, micro_batches), micro_batches);
  }
}

StageSteps schedule_steps(const ScheduleChoice& choice, const ScheduleWork& work) {
  if (needs_times(choice.schedule)) {
    return best_list_schedule(work, choice.schedule == Schedule::zero_bubble).steps;
  }
  StageSteps steps;
  for (int stage = 0; stage < work.stages; ++stage) {
    steps.push_back(schedule_order(choice, work.stages, stage, work.micro_batches));
  }
  return steps;
}

double steps_makespan(const ScheduleWork& work, const StageSteps& steps) {
  const int last = work.virtual_stages() - 1;
  const auto m = static_cast<std::size_t>(work.micro_batches);
  const auto cell = [m](int v, int j) {
    return static_cast<std::size_t>(v) * m + static_cast<std::size_t>(j);
  };
  // When the forward and the input's gradient of a virtual stage are there; negative: not yet.
  std::vector<double> forward(work.seconds.size(), -1);
  std::vector<double> backward(work.seconds.size(), -1);
  std::vector<double> free(static_cast<std::size_t>(work.stages), 0);
  std::vector<std::size_t> next(static_cast<std::size_t>(work.stages), 0);
  std::vector<int> open;
  for (int stage = 0; stage < work.stages; ++stage) open.push_back(stage);
  double end = 0;
  while (!open.empty()) {
    const auto stage = static_cast<std::size_t>(open.back());
    open.pop_back();
    for (; next[stage] < steps[stage].size(); ++next[stage]) {
      const ComputeStep& step = steps[stage][next[stage]];
      const int v = step.chunk * work.stages + static_cast<int>(stage);
      const std::size_t here = cell(v, step.micro_batch);
      const PassSeconds& seconds = work.seconds[here];
      double input = 0;
      if (step.pass == Pass::forward) {
        if (v > 0) input = forward[cell(v - 1, step.micro_batch)];
      } else if (step.pass == Pass::backward_weight) {
        input = backward[here];
      } else {
        input = v < last ? backward[cell(v + 1, step.micro_batch)] : forward[here];
      }
      if (input < 0) break;
      double& busy = free[stage];
      busy = std::max(busy, input);
      int wakes = -1;
      if (step.pass == Pass::forward) {
        forward[here] = busy += seconds.forward;
        if (v < last) wakes = v + 1;
      } else if (step.pass == Pass::backward_weight) {
        busy += seconds.backward_weight;
      } else {
        busy += step.pass == Pass::backward ? seconds.backward() : seconds.backward_input;
        backward[here] = busy;
        if (v > 0) wakes = v - 1;
      }
      end = std::max(end, busy);
      if (wakes >= 0) open.push_back(wakes % work.stages);
    }
  }
  for (std::size_t stage = 0; stage < next.size(); ++stage) {
    if (next[stage] < steps[stage].size()) return std::numeric_limits<double>::infinity();
  }
  return end;
}

std::vector<double> peak_alive(const ScheduleWork& work, const StageSteps& steps) {
  std::vector<double> peaks;
  for (std::size_t stage = 0; stage < steps.size(); ++stage) {
    double alive = 0;
    double most = 0;
    for (const ComputeStep& step : steps[stage]) {
      if (step.pass == Pass::backward_input) continue;
      const auto v = static_cast<std::size_t>(step.chunk * work.stages) + stage;
      const double tokens = work.tokens[static_cast<std::size_t>(step.micro_batch)] * work.share[v];
      alive += step.pass == Pass::forward ? tokens : -tokens;
      most = std::max(most, alive);
    }
    peaks.push_back(most);
  }
  return peaks;
}

}  // namespace hydraulis
