#pragma once

#include <string>
#include <vector>

#include "planner/program/timeline.h"
#include "report/report.h"

namespace hydraulis {

/// One iteration's time in both timelines: from its first event's start to its last event's end.
struct IterationDifference {
  int iteration = 0;  ///< of the measured timeline
  double predicted_seconds = 0;
  double measured_seconds = 0;
  double error() const { return predicted_seconds / measured_seconds - 1; }
};

/// Instructions that have something in common, over all iterations.
struct GroupDifference {
  std::string name;
  std::int64_t count = 0;
  double predicted_seconds = 0;  ///< sum of their durations
  double measured_seconds = 0;
  double absolute_seconds = 0;  ///< sum of |predicted − measured|
};

/// A part of a stage's time on the compute stream: an instruction kind, or waiting (the stream
/// idle). The parts of a stage add up to its iterations, so their differences add up to the error.
struct Cause {
  int stage = 0;
  std::string name;
  double predicted_seconds = 0;  ///< mean of an iteration
  double measured_seconds = 0;
  double difference() const { return predicted_seconds - measured_seconds; }
};

struct TimelineDifference {
  std::vector<IterationDifference> iterations;
  std::vector<GroupDifference> by_kind;         ///< in the order of Op
  std::vector<GroupDifference> by_stage;        ///< compute stream only
  std::vector<GroupDifference> by_micro_batch;  ///< compute stream only, by pipeline
  std::vector<Cause> causes;                    ///< largest difference first
  std::vector<std::string> notes;
};

struct DiffOptions {
  int offset = 0;  ///< predicted iteration i lies beside measured iteration i + offset
  int skip = 0;    ///< iterations left out at the start of those in common: warm-up
};

/// Lays two timelines of the same programs side by side, instruction by instruction, as far as both
/// have an iteration. Kinds of the optimizer's part that only one timeline has at all are left out
/// and noted. Throws InputError
/// when they have no iteration in common, when an instruction stands twice, or when the programs
/// differ: the first stage or instruction that does is named.
TimelineDifference diff(const Timeline& predicted, const Timeline& measured,
                        const DiffOptions& options = {});

/// `diff`: JSON {mean_abs_error, p95_abs_error, mean_error (of iteration times, relative to the
/// measured one), iterations[{iteration, predicted_ms, measured_ms, error}], by_kind{kind: {count,
/// predicted_ms, measured_ms, error, mean_abs_error}}, by_stage{...}, by_micro_batch{...},
/// causes[{stage, cause, predicted_ms, measured_ms, difference_ms}], notes}. CSV: the iterations.
Report diff_report(const TimelineDifference& difference);

}  // namespace hydraulis
