#pragma once

#include <string>

#include "planner/program/timeline.h"

namespace hydraulis {

/// Checks the value of --timeline before any work is done: empty (not given), or a name that ends
/// in .json, .json.gz or .h5. Throws InputError.
void check_timeline_name(const std::string& name);

/// Writes HDF5 (.h5) or Chrome trace, and warns of a trace that viewers open badly.
void write_timeline(const Timeline& timeline, const std::string& name);

}  // namespace hydraulis
