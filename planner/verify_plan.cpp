#include "planner/verify_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

namespace hydraulis {
namespace {

constexpr double kRounding = 1e-9;

/// Makespan of 1F1B by following each operation's predecessors: slow, and independent of
/// schedule.cpp.
double makespan_by_definition(const CostModel& model, const PipelinePlan& pipeline) {
  const int stages = pipeline.scheme.pp;
  const int count = static_cast<int>(pipeline.micro_batches.size());
  if (count == 0) return 0;
  struct Operation {
    bool forward;
    int micro_batch;
  };
  std::vector<std::vector<Operation>> streams(static_cast<std::size_t>(stages));
  for (int stage = 0; stage < stages; ++stage) {
    int next = 0;
    for (; next < std::min(stages - 1 - stage, count); ++next) {
      streams[stage].push_back({true, next});
    }
    for (int backward = 0; backward < count; ++backward) {
      if (next < count) streams[stage].push_back({true, next++});
      streams[stage].push_back({false, backward});
    }
  }
  std::map<std::tuple<bool, int, int>, double> ends;
  std::vector<std::size_t> position(streams.size(), 0);
  std::vector<double> busy_until(streams.size(), 0.0);
  double last = 0;
  for (bool progress = true; progress;) {
    progress = false;
    for (int stage = 0; stage < stages; ++stage) {
      while (position[stage] < streams[stage].size()) {
        const Operation& operation = streams[stage][position[stage]];
        const int from = operation.forward ? stage - 1 : stage + 1;
        double start = busy_until[stage];
        if (from >= 0 && from < stages) {
          const auto input = ends.find({operation.forward, from, operation.micro_batch});
          if (input == ends.end()) break;
          start = std::max(start, input->second);
        }
        const MicroBatch& micro_batch = pipeline.micro_batches[operation.micro_batch];
        const double seconds =
            stage_cost(model, pipeline.scheme, stage)
                ->of(micro_batch.sum_squares(),
                     static_cast<double>(micro_batch.tokens() + micro_batch.padding));
        const double end =
            start + seconds * (operation.forward ? kForwardShare : 1 - kForwardShare);
        ends[{operation.forward, stage, operation.micro_batch}] = end;
        busy_until[stage] = end;
        last = std::max(last, end);
        ++position[stage];
        progress = true;
      }
    }
  }
  return last;
}

}  // namespace

std::vector<std::string> verify(const BatchPlan& plan, const Batch& batch, const CostModel& model,
                                std::int64_t max_tokens_cap) {
  std::vector<std::string> problems;
  std::map<std::uint64_t, std::uint32_t> expected;
  for (std::size_t i = 0; i < batch.ids.size(); ++i) {
    if (batch.lengths[i] > 0) expected[batch.ids[i]] = batch.lengths[i];
  }
  std::map<std::uint64_t, int> seen;
  std::vector<double> slowest;                  // by phase
  std::vector<std::vector<double>> step_times;  // the slowest micro-batch of each step, by phase
  int phase = 0;
  for (std::size_t k = 0; k < plan.pipelines.size(); ++k) {
    const PipelinePlan& pipeline = plan.pipelines[k];
    if (pipeline.phase < phase || pipeline.phase > phase + 1 || (k == 0 && pipeline.phase != 0)) {
      problems.push_back(
          fmt::format("pipeline {}: phase {} after phase {}", k, pipeline.phase, phase));
      return problems;
    }
    phase = pipeline.phase;
    slowest.resize(static_cast<std::size_t>(phase) + 1);
    step_times.resize(slowest.size());
    std::int64_t limit = max_tokens(model, pipeline.scheme);
    if (max_tokens_cap > 0) limit = std::min(limit, max_tokens_cap);
    for (std::size_t j = 0; j < pipeline.micro_batches.size(); ++j) {
      const MicroBatch& micro_batch = pipeline.micro_batches[j];
      const std::string where = fmt::format("pipeline {} micro-batch {}", k, j);
      if (micro_batch.lengths.size() != micro_batch.sequence_ids.size()) {
        problems.push_back(where + ": ids and lengths differ in number");
        continue;
      }
      if (micro_batch.lengths.empty()) problems.push_back(where + ": is empty");
      std::uint64_t needed = 0;
      for (std::size_t i = 0; i < micro_batch.lengths.size(); ++i) {
        const std::uint64_t id = micro_batch.sequence_ids[i];
        const auto found = expected.find(id);
        if (found == expected.end()) {
          problems.push_back(fmt::format("{}: sequence {} is not in the batch", where, id));
        } else if (found->second != micro_batch.lengths[i]) {
          problems.push_back(fmt::format("{}: sequence {} has {} tokens, not {}", where, id,
                                         found->second, micro_batch.lengths[i]));
        }
        ++seen[id];
        const std::uint64_t unit = pipeline.scheme.cp > 1 ? 2u * pipeline.scheme.cp : 1u;
        needed += (unit - micro_batch.lengths[i] % unit) % unit;
      }
      if (micro_batch.padding < needed) {
        problems.push_back(fmt::format("{}: has {} padding tokens, context parallelism needs {}",
                                       where, micro_batch.padding, needed));
      }
      const auto tokens = static_cast<std::int64_t>(micro_batch.tokens() + micro_batch.padding);
      if (tokens > limit) {
        problems.push_back(fmt::format("{}: has {} tokens, the limit is {}", where, tokens, limit));
      }
    }
    const double seconds = makespan_by_definition(model, pipeline);
    if (std::abs(seconds - pipeline.time_seconds) > kRounding * seconds) {
      problems.push_back(fmt::format("pipeline {}: takes {} s, the plan says {} s", k, seconds,
                                     pipeline.time_seconds));
    }
    slowest.back() = std::max(slowest.back(), seconds);
    std::vector<double>& steps = step_times.back();
    steps.resize(std::max(steps.size(), pipeline.micro_batches.size()));
    for (std::size_t j = 0; j < pipeline.micro_batches.size(); ++j) {
      const MicroBatch& one = pipeline.micro_batches[j];
      steps[j] = std::max(
          steps[j], stage_cost(model, pipeline.scheme, 0)
                        ->of(one.sum_squares(), static_cast<double>(one.tokens() + one.padding)));
    }
  }
  double makespan = 0;
  if (model.sharding == ParameterSharding::sharded) {
    for (const auto& steps : step_times) {
      makespan = std::accumulate(steps.begin(), steps.end(), makespan);
    }
  } else {
    makespan = std::accumulate(slowest.begin(), slowest.end(), 0.0);
  }
  for (const auto& [id, length] : expected) {
    const auto found = seen.find(id);
    const int times = found == seen.end() ? 0 : found->second;
    if (times != 1) problems.push_back(fmt::format("sequence {} is placed {} times", id, times));
  }
  if (std::abs(makespan - plan.makespan_seconds) > kRounding * makespan) {
    problems.push_back(
        fmt::format("the makespan is {} s, the plan says {} s", makespan, plan.makespan_seconds));
  }
  for (const double bound : {plan.lower_bound_seconds, plan.set_lower_bound_seconds}) {
    if (bound > makespan * (1 + kRounding)) {
      problems.push_back(
          fmt::format("a lower bound of {} s is above the makespan {} s", bound, makespan));
    }
  }
  return problems;
}

}  // namespace hydraulis
