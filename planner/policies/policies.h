#pragma once

#include <memory>

#include "planner/policy.h"

namespace hydraulis {

// One function a policy, each in the file of its name; planner/policies/registry.cpp lists them.

/// The strategy set, one strategy chosen for each iteration, two-stage assignment.
std::unique_ptr<Policy> make_hydraulis(const PolicySetup& setup);
/// The best homogeneous layout with the two-stage assignment: what assignment alone gains.
std::unique_ptr<Policy> make_hydraulis_static(const PolicySetup& setup);
/// The best homogeneous layout, sequences packed to the context length and dealt round robin: what
/// a Megatron-LM user does today.
std::unique_ptr<Policy> make_static_pack(const PolicySetup& setup);
/// The best homogeneous layout, sequences of like length padded to the longest of their
/// micro-batch.
std::unique_ptr<Policy> make_static_pad(const PolicySetup& setup);

}  // namespace hydraulis
