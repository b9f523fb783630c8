#include <fmt/ranges.h>

#include <array>

#include "base/error.h"
#include "planner/policies/policies.h"

namespace hydraulis {
namespace {

constexpr std::array kPolicies = {
    PolicyInfo{"static-pack", "best homogeneous layout, packing to the context length",
               make_static_pack},
    PolicyInfo{"static-pad", "best homogeneous layout, padding to the longest of a micro-batch",
               make_static_pad},
    PolicyInfo{"hydraulis-static", "best homogeneous layout, two-stage assignment",
               make_hydraulis_static},
    PolicyInfo{"hydraulis", "a heterogeneous strategy chosen every iteration, two-stage assignment",
               make_hydraulis},
};

}  // namespace

std::span<const PolicyInfo> policies() { return kPolicies; }

std::unique_ptr<Policy> make_policy(const std::string& name, const PolicySetup& setup) {
  std::vector<std::string> names;
  for (const PolicyInfo& policy : kPolicies) {
    if (name == policy.name) return policy.make(setup);
    names.emplace_back(policy.name);
  }
  throw InputError("policy '{}' is not known; known are: {}", name, fmt::join(names, ", "));
}

std::vector<Sequence> sequences_of(const Batch& batch) {
  std::vector<Sequence> sequences;
  sequences.reserve(batch.lengths.size());
  for (std::size_t i = 0; i < batch.lengths.size(); ++i) {
    if (batch.lengths[i] > 0) sequences.push_back({batch.ids[i], batch.lengths[i]});
  }
  return sequences;
}

}  // namespace hydraulis
