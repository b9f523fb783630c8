#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "costmodel/cost_model.h"
#include "planner/batch_plan.h"
#include "planner/program/lower.h"
#include "sim/costing.h"
#include "sim/losses.h"
#include "sim/replay.h"
#include "sim/variance.h"

namespace hydraulis {

struct IterationOptions {
  CostingOptions costing;
  Variance variance;  ///< jitter, stragglers and slow links; none by default
  LowerOptions lowering;
  Overlap overlap = Overlap::off;
  /// Put plans under the schedule of `lowering` first (put_under_schedule), which chooses the order
  /// of their micro-batches; off, they run as they stand.
  bool order_for_schedule = false;
  int threads = 1;  ///< iterations are independent; results are the same for any number
  /// Stop (InfeasibleError) when a stage's high-water mark passes the device's memory. Applies to
  /// the composed memory model; under `published` the plan's own limits have been kept already.
  bool check_memory = true;
  /// Instead of stopping, count such iterations (IterationResult::out_of_memory).
  bool count_out_of_memory = false;
  /// Called from the calling thread's or a worker's side, one call at a time, with the number of
  /// iterations done.
  std::function<void(std::size_t)> on_progress;
};

struct IterationResult {
  double time_seconds = 0;
  int strategy = 0;
  std::uint64_t tokens = 0;                  ///< real ones: padding never counts
  double bubble_share = 0;                   ///< all idle device time / (devices · time)
  double exposed_communication_seconds = 0;  ///< mean over devices
  double flops = 0;                          ///< model FLOPs of the real tokens
  double mfu = 0;
  double memory_bytes = 0;  ///< highest mark of any device; composed model, 0 under `published`
  /// More is alive than the memory model allows: its limit in bytes, or under `published` as many
  /// tokens as pp of the longest micro-batches have.
  bool out_of_memory = false;
  Losses losses;
  std::uint64_t events = 0;
};

struct RunSummary {
  double mean_seconds = 0;
  double p50_seconds = 0;  ///< nearest rank: the ⌈0.50·n⌉-th smallest, and so on
  double p95_seconds = 0;
  double p99_seconds = 0;
  double tokens_per_second = 0;
  double mfu = 0;                            ///< FLOPs of the run / (time · devices · peak)
  double bubble_share = 0;                   ///< idle device time of the run / its device time
  double exposed_communication_seconds = 0;  ///< mean per iteration and device
  double memory_bytes = 0;                   ///< highest mark of the run
  double out_of_memory_share = 0;            ///< of the iterations
  Losses losses;                             ///< of the run
  double wall_seconds = 0;                   ///< measured: what the simulation itself took
  std::uint64_t events = 0;
};

struct RunResult {
  std::vector<IterationResult> iterations;  ///< in the order of the plans
  RunSummary summary;
};

/// One iteration in full: lowered, costed and replayed.
struct SimulatedIteration {
  Program program;
  Replay replay;
  IterationResult result;
};

/// Seconds of every instruction in the iteration of that number: what the cost model says, varied.
Durations varied_durations(const Program& program, const CostModel& model,
                           const IterationOptions& options, std::uint64_t iteration);
/// Costs and replays a program as it stands, as the iteration of that number (variance is drawn by
/// it).
SimulatedIteration simulate_program(Program program, const CostModel& model,
                                    const IterationOptions& options = {}, std::uint64_t number = 0);
/// Simulates one iteration (for its timeline: make_timeline(program, replay)).
SimulatedIteration simulate_iteration(const BatchPlan& plan, const CostModel& model,
                                      const IterationOptions& options = {},
                                      std::uint64_t number = 0);

/// Simulates a sequence of planned iterations. Errors name the iteration; of several, the earliest
/// is reported, on any number of threads.
RunResult simulate(const std::vector<BatchPlan>& plans, const CostModel& model,
                   const IterationOptions& options = {});

/// The same for a part of a run that begins with iteration `first`, without a summary: errors and
/// progress count from there.
std::vector<IterationResult> simulate_part(std::span<const BatchPlan> plans, const CostModel& model,
                                           const IterationOptions& options, std::size_t first);

/// Adds iterations up to a summary and keeps of each only what the percentile needs.
class RunTotals {
 public:
  void add(const IterationResult& iteration);
  /// Mean, percentile and rates of a run on `devices` devices of `peak_flops` each; wall_seconds is
  /// left to the caller.
  RunSummary summary(int devices, double peak_flops) const;

 private:
  RunSummary sums_;  ///< highest marks and counts so far
  double seconds_ = 0;
  double tokens_ = 0;
  double flops_ = 0;
  double idle_ = 0;
  double exposed_ = 0;
  double out_of_memory_ = 0;
  std::vector<double> times_;
};

}  // namespace hydraulis
