#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "sim/variance.h"

namespace hydraulis {

/// How nodes fail and what it takes to go on.
struct FailureModel {
  double node_mtbf_seconds = 0;  ///< mean time between failures of one node
  double weibull_shape = 1;      ///< 1: exponential; below: infant mortality; above: wear
  /// Of the failures, those after which the node is usable at once (a crashed process, a lost
  /// connection).
  double transient_share = 0;
  double detection_seconds = 0;  ///< from the failure to the stop of the job
  double restart_seconds = 0;    ///< from there to the first new iteration, loading not counted
};

/// What a checkpoint costs. Blocking: training stands still until it is written. Asynchronous: it
/// stands still for the snapshot, and the checkpoint counts from when it has been written.
struct CheckpointModel {
  std::optional<double> interval_seconds;            ///< of training between checkpoints
  std::optional<std::uint64_t> interval_iterations;  ///< instead; neither: the one found best
  std::optional<double> write_seconds;               ///< given, or from bytes and bandwidths
  std::optional<double> read_seconds;                ///< the same, at a restart
  double bytes_per_parameter = 0;                    ///< 0: what the optimizer layout holds
  double write_bandwidth = 0;                        ///< bytes/s of the storage, 0: no limit given
  double write_bandwidth_per_node = 0;               ///< bytes/s, 0: no limit given
  double read_bandwidth = 0;                         ///< 0: as for writing
  double read_bandwidth_per_node = 0;                ///< 0: as for writing
  bool asynchronous = false;
  double snapshot_seconds = 0;  ///< of standing still for an asynchronous checkpoint
};

enum class RecoveryMode : std::uint8_t {
  replace,  ///< wait for a node when no spare is left
  shrink,   ///< go on with the nodes there are, by a plan for them
};

/// How a job goes on after a node has failed.
struct RecoveryModel {
  RecoveryMode mode = RecoveryMode::replace;
  int spare_nodes = 0;
  double repair_seconds = 0;
  bool exponential_repair = false;  ///< repair_seconds is the mean; else always that
  /// shrink: with fewer nodes it waits; 0: four fewer than there are, but at least half of them.
  int least_nodes = 0;
};

/// A faults file (docs/formats.md, "Faults").
struct Faults {
  Variance variance;
  std::optional<FailureModel> failures;
  std::optional<CheckpointModel> checkpoint;
  RecoveryModel recovery;
  std::string where = "faults";  ///< the file, for messages
};

/// Reads a faults file. Throws InputError naming file and field.
Faults load_faults(const std::string& path);
/// The same from parsed JSON; `where` names the file in errors.
Faults parse_faults(const Json& json, const std::string& where);

/// Seconds that writing or reading a checkpoint of `parameters` takes on `nodes` nodes.
/// `bytes_per_parameter` is used where the file gives none.
double checkpoint_write_seconds(const CheckpointModel& checkpoint, double parameters,
                                double bytes_per_parameter, int nodes);
double checkpoint_read_seconds(const CheckpointModel& checkpoint, double parameters,
                               double bytes_per_parameter, int nodes);

}  // namespace hydraulis
