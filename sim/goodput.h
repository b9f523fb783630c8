#pragma once

#include <cstdint>
#include <vector>

#include "sim/faults.h"

namespace hydraulis {

/// An iteration of a simulated run, to be drawn from.
struct IterationSample {
  double seconds = 0;
  double tokens = 0;
};

/// A training job on a cluster whose nodes fail.
struct TrainingJob {
  int nodes = 0;
  /// Iterations on all nodes, and then on one node fewer, two fewer and so on for as far down as a
  /// shrinking job goes (one list where it does not shrink). Lists of one length are taken to be of
  /// the same batches: what one node less makes of a batch is then counted batch by batch.
  std::vector<std::vector<IterationSample>> iterations;
  bool fails = false;
  FailureModel failures;
  RecoveryModel recovery;
  bool checkpoints = false;
  double interval_seconds = 0;            ///< of training, up to the iteration that completes them
  std::uint64_t interval_iterations = 0;  ///< instead, where not 0
  double write_seconds = 0;
  double read_seconds = 0;
  bool asynchronous = false;
  double snapshot_seconds = 0;
  double horizon_seconds = 0;
  std::uint64_t seed = 0;
};

/// What became of the time. The six kinds of it are everything there is: their sum is the horizon.
struct WallTime {
  double useful = 0;      ///< what all nodes need for the iterations that were kept
  double checkpoint = 0;  ///< standing still for checkpoints
  double lost = 0;        ///< training that a failure undid
  double recovery = 0;    ///< from a failure to its detection, restarting, loading; growing back
  double degraded = 0;    ///< what kept iterations took longer on fewer nodes
  double waiting = 0;     ///< for a node to be repaired

  double whole() const { return useful + checkpoint + lost + recovery + degraded + waiting; }
};

/// One run of the job from its begin to the horizon.
struct JobRun {
  WallTime time;
  double tokens = 0;   ///< of kept iterations
  double goodput = 0;  ///< tokens per second over those of the same iterations without faults
  std::uint64_t failures = 0;
  std::uint64_t checkpoints = 0;  ///< written completely
  std::uint64_t events = 0;       ///< handled by the engine
};

/// Runs the job in virtual time on the engine of replays. Iterations are drawn with replacement
/// into a sequence of 16,384, which then repeats; what is trained again after a failure is the same
/// iterations. Each node has its own clock, which runs whenever it is in service (spares are cold),
/// and starts anew when it is repaired. A failure stops the job: detection, then, with a spare for
/// every failed node, restart and loading of the last complete checkpoint; without, by the recovery
/// mode. A failure while recovering begins the recovery anew. A job on fewer nodes takes repaired
/// ones back behind its next checkpoint, which it then waits for, and restarts. Work at the horizon
/// that no failure has undone is kept. Nodes, iterations and repairs are drawn by (seed,
/// replication, node), so that runs with another interval meet the same failures.
/// Throws InputError for a job that cannot be.
JobRun run_job(const TrainingJob& job, std::uint64_t replication);

}  // namespace hydraulis
