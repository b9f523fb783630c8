#pragma once

#include <fmt/format.h>

#include "kernels/communicator.h"
#include "runtime/iteration.h"

namespace hydraulis {

/// Does `work`; a communication that fails in it names the step, the rank and what was done.
template <typename Work>
void naming_step(const Backend& backend, int step, Op op, const Work& work) {
  try {
    work();
  } catch (const CommunicationError& error) {
    throw CommunicationError(fmt::format("step {}, rank {}, {}: {}", step, backend.world->rank(),
                                         to_string(op), error.what()));
  }
}

/// The timeline's event of an instruction; seconds since the iteration began.
TimelineEvent event_of(const Program& program, int stage, int instruction, int iteration,
                       double start_seconds, double end_seconds);

/// Records what all stages do together for every stage whose first device this rank is: their
/// `number`-th instruction of this kind, from `start` until now.
void record_together(const Backend& backend, const Program& program, const ExecuteOptions& options,
                     Op op, int number, std::chrono::steady_clock::time_point start,
                     IterationOutcome& outcome);

}  // namespace hydraulis
