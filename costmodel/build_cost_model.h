#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/cost_model.h"

namespace hydraulis {

/// The shipped preset when it is of this model and device, else an analytic profile.
Profile default_profile(const ModelSpec& model, const ClusterSpec& cluster);

/// `published` when the profile has the constants of that formula, else `composed`.
MemoryModel default_memory_model(const Profile& profile);

/// Puts the parts together. Throws InputError when the layout does not use exactly the cluster's
/// devices, when the profile was taken on a model with other sizes (only the vocabulary, the biases
/// and tying may differ: their share of the measured times is not corrected), or when the published
/// memory model is asked of a profile without its constants; what keep_states_on_host() throws for
/// states in host memory.
CostModel make_cost_model(const ModelSpec& model, const ClusterSpec& cluster,
                          const Profile& profile, MemoryModel memory,
                          const OptimizerLayout& optimizer,
                          OptimizerStates states = OptimizerStates::device);

/// The homogeneous layout over all devices with the smallest model-parallel size whose micro-batch
/// holds a sequence of `context` tokens; schemes without recomputation and context parallelism
/// first. Throws InfeasibleError saying which limit is missed, by how much, and the nearest context
/// or cluster size that fits.
OptimizerLayout default_optimizer_layout(const ModelSpec& model, const ClusterSpec& cluster,
                                         const Profile& profile, MemoryModel memory,
                                         std::int64_t context,
                                         OptimizerStates states = OptimizerStates::device);

/// The same as a scheme: the layout's pipelines, with the context parallelism and recomputation
/// they need.
Scheme default_homogeneous_scheme(const ModelSpec& model, const ClusterSpec& cluster,
                                  const Profile& profile, MemoryModel memory, std::int64_t context,
                                  OptimizerStates states = OptimizerStates::device);

/// Parallel degrees that an analytic profile leaves out, each with its reason.
std::vector<std::string> excluded_schemes(const ModelSpec& model, const ClusterSpec& cluster);

}  // namespace hydraulis
