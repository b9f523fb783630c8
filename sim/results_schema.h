#pragma once

// Schema of a results file (docs/formats.md, "Results"), version 1. /runs: one column a field, one
// row a run. /grid: one column an axis. /iterations, /strategies, /stages, /events: rows of all
// runs after one another, told apart by their column `run`. Names that the writer and the reader
// share.
#include <cstdint>
#include <utility>

#include "sim/results.h"

namespace hydraulis::detail {

inline constexpr std::pair<const char*, double StageMemory::*> kMemoryParts[] = {
    {"optimizer_bytes", &StageMemory::optimizer}, {"parameter_bytes", &StageMemory::parameters},
    {"gradient_bytes", &StageMemory::gradients},  {"activation_bytes", &StageMemory::activations},
    {"logit_bytes", &StageMemory::logits},        {"buffer_bytes", &StageMemory::buffers},
    {"constant_bytes", &StageMemory::constant}};

inline constexpr const char* kResultsFormat = "hydraulis results";
inline constexpr std::int64_t kResultsVersion = 1;
inline constexpr double kMilliseconds = 1e3;  ///< a second
inline constexpr int kOps = static_cast<int>(Op::barrier) + 1;

}  // namespace hydraulis::detail
