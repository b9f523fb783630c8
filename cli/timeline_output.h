#pragma once

#include <string>
#include <vector>

#include "planner/program/timeline.h"
#include "sim/memory_timeline.h"

namespace hydraulis {

/// Checks the value of --timeline before any work is done: empty (not given), or a name that ends
/// in .json, .json.gz or .h5. Throws InputError.
void check_timeline_name(const std::string& name);

/// Writes HDF5 (.h5) or Chrome trace, and warns of a trace that viewers open badly.
void write_timeline(const Timeline& timeline, const std::string& name);

/// Writes CSV, a row a change: time_ms, pipeline, stage, bytes of a device by kind and in all.
void write_memory_timeline(const Program& program,
                           const std::vector<std::vector<MemoryPoint>>& timeline,
                           const std::string& path);

}  // namespace hydraulis
