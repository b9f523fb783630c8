#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "costmodel/cost_model.h"
#include "costmodel/scheme.h"

namespace hydraulis {

/// A list of pipelines, each with its own scheme, that together use the cluster.
using Strategy = std::vector<Scheme>;

/// Strategies proposed offline, of which one is chosen for each iteration, and the fixed layout of
/// the optimizer states.
struct StrategySet {
  std::vector<Strategy> strategies;
  OptimizerLayout optimizer;
};

/// "4x(1,16,1)" or "(1,16,1)+6x(1,8,1)".
std::string to_string(const Strategy& strategy);
/// Parses strategies separated by ';', e.g. "4x(1,16,1); (1,16,1)+6x(1,8,1)". Throws InputError.
std::vector<Strategy> parse_strategies(std::string_view text, const std::string& where);
int devices(const Strategy& strategy);
bool is_homogeneous(const Strategy& strategy);

}  // namespace hydraulis
