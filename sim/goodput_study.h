#pragma once

#include <vector>

#include "sim/goodput.h"

namespace hydraulis {

/// A mean over replications, with the half-width of its 95 % confidence interval (Student's t).
struct Estimate {
  double mean = 0;
  double half_width = 0;
};
/// Of at least two values.
Estimate estimate(const std::vector<double>& values);

/// Means over replications of a job.
struct Goodput {
  Estimate goodput;            ///< kept tokens per second over the fault-free rate
  Estimate tokens_per_second;  ///< kept
  WallTime time;               ///< means; whole() is the horizon
  WallTime half_widths;        ///< of each part
  Estimate failures;           ///< of a run
  Estimate checkpoints;        ///< complete ones, of a run
  double worst = 0;            ///< least goodput of a replication
  std::uint64_t events = 0;    ///< of all replications
};

/// Runs the job `replications` times (at least 2), on any number of threads with the same result.
/// Throws InputError for fewer, and for failures so frequent that simulating them would take hours.
Goodput measure_goodput(const TrainingJob& job, int replications, int threads);

/// Young's first-order best time between checkpoints that stop training for `cost` seconds, with
/// `mtbf` seconds between failures of the whole job: √(2·cost·mtbf) (CACM 17(9), 1974).
double young_interval(double cost, double mtbf);
/// Daly's higher-order estimate (Future Generation Computer Systems 22(3), 2006, equation 37):
/// √(2·C·M)·(1 + √(C/2M)/3 + C/18M) - C below C = 2M, else M.
double daly_interval(double cost, double mtbf);
/// Mean time between failures of the whole job: of a node / nodes.
double job_mtbf(const TrainingJob& job);
/// Seconds that training stands still for a checkpoint.
double checkpoint_stop(const TrainingJob& job);

/// A time between checkpoints and what it gives.
struct IntervalTry {
  double interval_seconds = 0;
  Estimate goodput;
};

struct IntervalSearch {
  std::vector<IntervalTry> tries;  ///< by interval
  double best_seconds = 0;         ///< where the simulated goodput is highest
};

/// Simulates intervals from an eighth of Young's to eight times it, four to an octave but none
/// shorter than an iteration, all under the same failures. The waste (1 - goodput) of those around
/// the best is fitted by a/T + b·T + c, whose minimum √(a/b) is tried as well; the best of all
/// tried is returned. Young's interval needs failures and a checkpoint that costs something; throws
/// InputError else.
IntervalSearch search_interval(TrainingJob job, int replications, int threads);

}  // namespace hydraulis
