#pragma once

#include <string_view>

namespace hydraulis {

/// SIGTERM, SIGINT and SIGUSR1 (which mpirun passes on and batch systems send as a warning) from
/// now on only raise a flag, which the ranks agree on at the end of a step. A launcher also sends
/// SIGTERM to the survivors of a dead rank, whose step never ends: a process that has not reached
/// stop_agreed() when its grace is over says so and ends itself with exit code 1. The signal makes
/// the process say where it is, so that a job whose rank died tells step and instruction.
void catch_stop_signals(int rank, double grace_seconds);
/// The grace from now on: longer than a step takes.
void set_stop_grace(double seconds);
/// Where this process is from now on: "step 12, rank 1, stage 0, forward of micro-batch 3".
void set_position(std::string_view text);
/// Whether this rank has been asked to stop.
bool stop_requested();
/// The ranks have agreed to stop: there is time to write a checkpoint.
void stop_agreed();

}  // namespace hydraulis
