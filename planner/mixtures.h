#pragma once

#include <span>
#include <vector>

#include "planner/proposal.h"

namespace hydraulis {

/// Strategies of one or two schemes that use all devices exactly: a few pipelines of a scheme with
/// long micro-batches for the long sequences, and another scheme on all other devices. The dynamic
/// program's objective knows neither micro-batches nor parameter traffic, so these simple shapes
/// are tried beside its solutions. At least one pipeline holds `least_tokens`.
std::vector<Strategy> mixtures(std::span<const SchemeOption> schemes, int devices,
                               std::int64_t least_tokens);

/// Appends a strategy that is not among them yet.
void add_new(std::vector<Strategy>& strategies, Strategy strategy);

}  // namespace hydraulis
