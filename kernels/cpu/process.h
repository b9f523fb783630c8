#pragma once

#include <sched.h>

#include <vector>

namespace hydraulis::cpu {

/// Threads for a process that may run on the cores of masks[own], on a node with other processes
/// that may run on theirs: each core is shared equally among those that may run on it, and what a
/// process gets is rounded down, at least 1.
int fair_threads(const std::vector<cpu_set_t>& masks, std::size_t own);

/// HYDRAULIS_TIMEOUT_SECONDS, or 60. Throws InputError.
double timeout_from_environment();

}  // namespace hydraulis::cpu
