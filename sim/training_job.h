#pragma once

#include "costmodel/cost_model.h"
#include "sim/faults.h"
#include "sim/goodput.h"
#include "sim/iterations.h"

namespace hydraulis {

/// The iterations of a simulated run, to be drawn from.
std::vector<IterationSample> iteration_samples(const RunResult& run);

/// Fewest nodes that a job of `nodes` goes on with: all of them unless it shrinks; then what the
/// file says, or four nodes fewer, but no less than half. Throws InputError when the file asks for
/// more than there are.
int least_nodes(const Faults& faults, int nodes);

/// A job as a faults file describes it, training the model on the nodes of its cluster.
/// `iterations` as in TrainingJob. Without failures in the file nothing fails, without a checkpoint
/// none is written; the interval is left at 0 where the file gives none. Throws InputError for
/// failures without checkpoints, and when there is neither.
TrainingJob training_job(const Faults& faults, const CostModel& model,
                         std::vector<std::vector<IterationSample>> iterations);

/// Bytes of a checkpoint of the model.
double checkpoint_bytes(const Faults& faults, const CostModel& model);

}  // namespace hydraulis
