#include "planner/schedule.h"

#include <algorithm>
#include <numeric>

namespace hydraulis {

double OneForwardOneBackward::makespan(std::span<const double> seconds) {
  if (stages_ == 1) return std::accumulate(seconds.begin(), seconds.end(), 0.0);
  by_stage_.clear();
  for (int stage = 0; stage < stages_; ++stage) {
    by_stage_.insert(by_stage_.end(), seconds.begin(), seconds.end());
  }
  return makespan_by_stage(by_stage_, static_cast<int>(seconds.size()));
}

double OneForwardOneBackward::makespan_by_stage(std::span<const double> seconds, int m) {
  if (m == 0) return 0;
  const auto cell = [m](int stage, int j) { return static_cast<std::size_t>(stage) * m + j; };
  forward_end_.resize(seconds.size());
  backward_end_.resize(seconds.size());
  // With unit times forward j of stage i would run in slot 2j+i and its backward in slot
  // 2j+2pp−1−i; every operation waits only for operations of earlier slots, so one sweep over the
  // slots solves the recurrence.
  const int p = stages_;
  double end = 0;
  const int slots = 2 * (m - 1) + 2 * p;
  for (int slot = 0; slot < slots; ++slot) {
    for (int i = 0; i < p; ++i) {
      if ((slot - i) % 2 == 0) {
        const int j = (slot - i) / 2;
        if (slot < i || j >= m) continue;
        // In steady state the stage's previous operation is a backward, in warm-up a forward.
        const int previous_backward = j - (p - i);
        double start = previous_backward >= 0 ? backward_end_[cell(i, previous_backward)] : 0.0;
        if (j > 0) start = std::max(start, forward_end_[cell(i, j - 1)]);
        if (i > 0) start = std::max(start, forward_end_[cell(i - 1, j)]);
        forward_end_[cell(i, j)] = start + kForwardShare * seconds[cell(i, j)];
      } else {
        const int first = 2 * p - 1 - i;
        const int j = (slot - first) / 2;
        if (slot < first || j >= m) continue;
        const int forward_before = std::min(j + p - 1 - i, m - 1);
        double start = forward_end_[cell(i, forward_before)];
        if (j > 0) start = std::max(start, backward_end_[cell(i, j - 1)]);
        if (i < p - 1) start = std::max(start, backward_end_[cell(i + 1, j)]);
        const double whole = seconds[cell(i, j)];
        backward_end_[cell(i, j)] = start + (whole - kForwardShare * whole);
        end = std::max(end, backward_end_[cell(i, j)]);
      }
    }
  }
  return end;
}

double pipeline_makespan(const PipelineCost& pipeline, std::span<const MicroBatch> micro_batches) {
  std::vector<double> seconds;
  seconds.reserve(micro_batches.size() * pipeline.stages.size());
  for (int stage = 0; stage < pipeline.scheme.pp; ++stage) {
    for (const MicroBatch& micro_batch : micro_batches) {
      seconds.push_back(pipeline.stage_seconds(stage, micro_batch));
    }
  }
  return OneForwardOneBackward(pipeline.scheme.pp)
      .makespan_by_stage(seconds, static_cast<int>(micro_batches.size()));
}

std::vector<int> order_micro_batches(std::span<const double> seconds, int stages, int work,
                                     double* best) {
  const int m = static_cast<int>(seconds.size());
  std::vector<int> descending(m);
  std::iota(descending.begin(), descending.end(), 0);
  std::stable_sort(descending.begin(), descending.end(),
                   [&](int x, int y) { return seconds[x] > seconds[y]; });
  OneForwardOneBackward schedule(stages);
  std::vector<double> scratch(m);
  const auto evaluate = [&](const std::vector<int>& order) {
    for (int j = 0; j < m; ++j) scratch[j] = seconds[order[j]];
    return schedule.makespan(scratch);
  };
  std::vector<int> chosen = descending;
  double chosen_seconds = evaluate(chosen);
  int evaluations = 1;
  if (stages > 1 && m > 1) {
    std::vector<std::vector<int>> candidates;
    candidates.emplace_back(descending.rbegin(), descending.rend());
    // The k smallest first (rising), the rest falling: a ramp of every useful length.
    for (int k = 1; k < std::min(m, stages + 2); ++k) {
      std::vector<int> ramp(descending.rbegin(), descending.rbegin() + k);
      ramp.insert(ramp.end(), descending.begin(), descending.end() - k);
      candidates.push_back(std::move(ramp));
    }
    // Every second one of the small half first: small at both ends.
    std::vector<int> head;
    std::vector<int> tail;
    for (int j = 0; j < m; ++j) (j % 2 == 0 ? tail : head).push_back(descending[j]);
    std::vector<int> pyramid(head.rbegin(), head.rend());
    pyramid.insert(pyramid.end(), tail.begin(), tail.end());
    candidates.push_back(std::move(pyramid));
    for (auto& candidate : candidates) {
      if (evaluations >= work) break;
      const double value = evaluate(candidate);
      ++evaluations;
      if (value < chosen_seconds) {
        chosen_seconds = value;
        chosen = std::move(candidate);
      }
    }
    // Pairwise swaps, first improvement, until a whole pass finds none or the work is spent.
    bool improved = true;
    while (improved && evaluations < work) {
      improved = false;
      for (int x = 0; x < m && evaluations < work; ++x) {
        for (int y = x + 1; y < m && evaluations < work; ++y) {
          if (seconds[chosen[x]] == seconds[chosen[y]]) continue;
          std::swap(chosen[x], chosen[y]);
          const double value = evaluate(chosen);
          ++evaluations;
          if (value < chosen_seconds * (1 - 1e-12)) {
            chosen_seconds = value;
            improved = true;
          } else {
            std::swap(chosen[x], chosen[y]);
          }
        }
      }
    }
  }
  if (best != nullptr) *best = chosen_seconds;
  return chosen;
}

}  // namespace hydraulis
