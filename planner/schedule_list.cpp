#include "planner/schedule_list.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// Sums of live tokens that are equal but for rounding fit.
constexpr double kRounding = 1e-9;

/// The pipeline in virtual time. Stages decide in the order of time, so whatever has begun before a
/// decision is known to it, with the time of its end.
class Lister {
 public:
  Lister(const ScheduleWork& work, bool split, const ListRule& rule)
      : work_(work),
        split_(split),
        rule_(rule),
        stages_(static_cast<std::size_t>(work.stages)),
        activation_(work.seconds.size(), kNever),
        gradient_(work.seconds.size(), kNever) {}

  ListSchedule run() {
    const int m = work_.micro_batches;
    for (int j = 0; j < m; ++j) activation_[cell(0, j)] = 0;
    ListSchedule result;
    result.rule = rule_;
    result.steps.resize(stages_.size());
    for (auto& steps : result.steps) {
      steps.reserve((split_ ? 3 : 2) * static_cast<std::size_t>(m));
    }
    for (int stage = 0; stage < work_.stages; ++stage) look(stage);
    while (true) {
      const auto first =
          std::min_element(stages_.begin(), stages_.end(),
                           [](const State& a, const State& b) { return a.decides < b.decides; });
      if (first->decides == kNever) break;
      const int stage = static_cast<int>(first - stages_.begin());
      result.steps[static_cast<std::size_t>(stage)].push_back(decide(stage));
      result.makespan = std::max(result.makespan, first->free);
    }
    return result;
  }

 private:
  struct State {
    double free = 0;
    double decides = kNever;  ///< when something can start here, as far as is known
    double alive = 0;
    int forwards = 0;
    int backwards = 0;
    int weights = 0;
  };

  std::size_t cell(int stage, int micro_batch) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(work_.micro_batches) +
           static_cast<std::size_t>(micro_batch);
  }

  double tokens(int micro_batch) const {
    return work_.tokens[static_cast<std::size_t>(micro_batch)];
  }

  /// When the next forward's input is here and may come alive; never while memory is full.
  double forward_arrives(int stage) const {
    const State& state = stages_[static_cast<std::size_t>(stage)];
    if (state.forwards == work_.micro_batches) return kNever;
    if (!work_.most_alive.empty() && state.alive > 0) {
      const double most = work_.most_alive[static_cast<std::size_t>(stage)];
      if (state.alive + tokens(state.forwards) > most * (1 + kRounding)) return kNever;
    }
    return activation_[cell(stage, state.forwards)];
  }

  double backward_arrives(int stage) const {
    const State& state = stages_[static_cast<std::size_t>(stage)];
    if (state.backwards == state.forwards) return kNever;
    return gradient_[cell(stage, state.backwards)];
  }

  /// Works out when the stage next decides.
  void look(int stage) {
    State& state = stages_[static_cast<std::size_t>(stage)];
    double arrives = std::min(forward_arrives(stage), backward_arrives(stage));
    if (split_ && state.weights < state.backwards) arrives = state.free;
    state.decides = std::max(state.free, arrives);
  }

  ComputeStep decide(int stage) {
    State& state = stages_[static_cast<std::size_t>(stage)];
    const double now = state.decides;
    const double back = backward_arrives(stage);
    const double forth = forward_arrives(stage);
    const bool can_back = back <= now;
    bool can_forth = forth <= now;
    if (can_back && can_forth && rule_.keep_ahead) {
      can_forth = state.forwards - state.backwards < work_.stages - stage;
    } else if (can_back) {
      can_forth = false;
    }
    const bool has_weights = split_ && state.weights < state.backwards;
    if (!can_back && can_forth && !split_ && waits(now, back, forward_seconds(stage))) {
      return backward(stage, back);
    }
    if (can_forth) return forward(stage, now);
    if (can_back) return backward(stage, now);
    if (has_weights) {
      const double takes = work_.at(stage, state.weights).backward_weight;
      if (waits(now, back, takes)) return backward(stage, back);
      if (waits(now, forth, takes)) return forward(stage, forth);
      return weight(stage, now);
    }
    throw Error(ExitCode::internal, "list schedule: a stage decides with nothing to do");
  }

  double forward_seconds(int stage) const {
    return work_.at(stage, stages_[static_cast<std::size_t>(stage)].forwards).forward;
  }

  bool waits(double now, double arrives, double takes) const {
    return arrives < now + rule_.patience * takes;
  }

  ComputeStep forward(int stage, double start) {
    State& state = stages_[static_cast<std::size_t>(stage)];
    const int j = state.forwards++;
    state.free = start + work_.at(stage, j).forward;
    state.alive += tokens(j);
    if (stage + 1 < work_.stages) {
      activation_[cell(stage + 1, j)] = state.free;
      look(stage + 1);
    } else {
      gradient_[cell(stage, j)] = state.free;
    }
    look(stage);
    return {Pass::forward, j};
  }

  ComputeStep backward(int stage, double start) {
    State& state = stages_[static_cast<std::size_t>(stage)];
    const int j = state.backwards++;
    const PassSeconds& seconds = work_.at(stage, j);
    state.free = start + (split_ ? seconds.backward_input : seconds.backward());
    if (!split_) state.alive -= tokens(j);
    if (stage > 0) {
      gradient_[cell(stage - 1, j)] = state.free;
      look(stage - 1);
    }
    look(stage);
    return {split_ ? Pass::backward_input : Pass::backward, j};
  }

  ComputeStep weight(int stage, double start) {
    State& state = stages_[static_cast<std::size_t>(stage)];
    const int j = state.weights++;
    state.free = start + work_.at(stage, j).backward_weight;
    state.alive -= tokens(j);
    look(stage);
    return {Pass::backward_weight, j};
  }

  const ScheduleWork& work_;
  bool split_;
  ListRule rule_;
  std::vector<State> stages_;
  std::vector<double>
      activation_;                ///< [stage · m + micro-batch]: when the forward's input is there
  std::vector<double> gradient_;  ///< the same for the backward's
};

ListSchedule in_turn(const ScheduleWork& work, bool split) {
  ListSchedule result;
  result.rule.in_turn = true;
  result.steps =
      schedule_steps({split ? Schedule::zero_bubble_h1 : Schedule::one_f_one_b, 1}, work);
  const std::vector<double> peaks = peak_alive(work, result.steps);
  for (std::size_t stage = 0; stage < work.most_alive.size(); ++stage) {
    if (peaks[stage] > work.most_alive[stage] * (1 + kRounding)) {
      result.makespan = kNever;
      return result;
    }
  }
  result.makespan = steps_makespan(work, result.steps);
  return result;
}

}  // namespace

ListSchedule list_schedule(const ScheduleWork& work, bool split_backward, const ListRule& rule) {
  if (work.chunks != 1) {
    throw Error(ExitCode::internal, "list schedule: expected one run of layers a stage");
  }
  return rule.in_turn ? in_turn(work, split_backward) : Lister(work, split_backward, rule).run();
}

ListSchedule best_list_schedule(const ScheduleWork& work, bool split_backward) {
  ListSchedule best;
  best.makespan = kNever;
  for (const ListRule& rule : kListRules) {
    ListSchedule one = list_schedule(work, split_backward, rule);
    if (best.steps.empty() || one.makespan < best.makespan) best = std::move(one);
  }
  return best;
}

}  // namespace hydraulis
