#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/batch_plan.h"

namespace hydraulis {

/// A plan as bytes for the other ranks, and back.
std::vector<std::uint8_t> encode(const BatchPlan& plan);
BatchPlan decode_plan(const std::vector<std::uint8_t>& bytes);

/// The same of an optimizer layout.
std::vector<std::uint8_t> encode(const OptimizerLayout& layout);
OptimizerLayout decode_layout(const std::vector<std::uint8_t>& bytes);

}  // namespace hydraulis
