#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/operator_profile.h"
#include "costmodel/profiler/bench.h"

namespace hydraulis {

/// Bytes of memory that the system could still give to processes; 0: it does not say.
std::int64_t available_memory_bytes();

/// Name of the node of every rank, on every rank.
std::vector<std::string> hosts_of_ranks(const Bench& bench);

/// What measures: filled from the system and the device; ceilings stay 0. `backend`: "cpu".
MachineDescription describe_machine(const Bench& bench, const std::vector<std::string>& hosts,
                                    const std::string& backend);

/// Lines for people before a run: ranks, nodes, cores, threads and shared memory as found, and what
/// is likely to go wrong with them, with the fix.
std::vector<std::string> machine_remarks(const MachineDescription& machine, int ranks_per_node);

}  // namespace hydraulis
