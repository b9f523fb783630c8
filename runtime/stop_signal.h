#pragma once

namespace hydraulis {

/// SIGTERM and SIGINT from now on only raise a flag, which the ranks agree on at the end of a step.
/// A launcher also sends SIGTERM to the survivors of a dead rank, whose step never ends: a process
/// that has not reached stop_agreed() `grace_seconds` after the signal ends itself.
void catch_stop_signals(int grace_seconds);
/// Whether this rank has been asked to stop.
bool stop_requested();
/// The ranks have agreed to stop: there is time to write a checkpoint.
void stop_agreed();

}  // namespace hydraulis
