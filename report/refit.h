#pragma once

#include <vector>

#include "costmodel/operator_profile.h"
#include "planner/program/timeline.h"
#include "report/diff.h"
#include "report/report.h"

namespace hydraulis {

/// What the times that a prediction was made of have to be multiplied by to add up to the measured
/// ones, over the iterations that diff() compares:
///   - forward and backward of each scheme, and of all together for the schemes that did not run:
///     measured over predicted sums. A last backward also holds the work of reductions that run
///     beside it;
///   - gather_parameters: until the last one ends; reduce_gradients: after the last backward;
///     gradient_norm: each of the stage that waited least for others, in each iteration;
///   - optimizer_step: sums.
/// Transfers between stages are left alone: a measured one holds waiting. So are kinds without time
/// in either timeline. Throws what diff() throws.
std::vector<Correction> corrections(const Timeline& predicted, const Timeline& measured,
                                    const DiffOptions& options = {});

/// Multiplies the profile's corrections by those found.
void add_corrections(OperatorProfile& profile, const std::vector<Correction>& found);

/// Adds a table and the JSON key refit[{time, scheme, factor}] to a report of diff.
void add_refit(Report& report, const std::vector<Correction>& found);

}  // namespace hydraulis
