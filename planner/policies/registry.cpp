#include <fmt/ranges.h>

#include <array>

#include "base/error.h"
#include "planner/policies/policies.h"

namespace hydraulis {
namespace {

constexpr std::array kPolicies = {
    PolicyInfo{"static-pack", "best homogeneous layout, packing to the context length",
               make_static_pack, true, true},
    PolicyInfo{"static-pad", "best homogeneous layout, padding to the longest of a micro-batch",
               make_static_pad, true, true},
    PolicyInfo{"static-dispatch",
               "best homogeneous layout, dispatched, packed to the context length",
               make_static_dispatch, true, true},
    PolicyInfo{"hydraulis-static", "best homogeneous layout, two-stage assignment",
               make_hydraulis_static, true, true},
    PolicyInfo{"hydraulis", "a heterogeneous strategy chosen every iteration, two-stage assignment",
               make_hydraulis, true, true},
    PolicyInfo{"hydraulis-steady", "strategies kept where switching does not pay, 7 batches ahead",
               make_steady, true, true},
    PolicyInfo{"hydraulis-ahead", "sequences dealt anew over windows of 8 batches", make_ahead,
               false, true},
    PolicyInfo{"megatron", "Megatron-LM: best tp, pp, cp layout, packing in the order drawn",
               make_megatron},
    PolicyInfo{"dynamic-cp", "Megatron-LM's dynamic context parallelism", make_dynamic_cp},
    PolicyInfo{"deepspeed", "DeepSpeed: ZeRO-3 with Ulysses, one degree", make_deepspeed, false},
    PolicyInfo{"fsdp", "PyTorch FSDP, sequences as the sampler deals them", make_fsdp, false},
    PolicyInfo{"hotspa", "HotSPa: length buckets, layouts switched within an iteration",
               make_hotspa},
    PolicyInfo{"flexsp", "FlexSP: unequal sequence-parallel groups, ZeRO-3", make_flexsp, false},
    PolicyInfo{"dynapipe", "DynaPipe: padded micro-batches by dynamic programming", make_dynapipe},
    PolicyInfo{"wlb-llm", "WLB-LLM: packing for equal time, outliers delayed", make_wlb, false},
    PolicyInfo{"longalign", "LongAlign: batches sorted by length, ZeRO-3", make_longalign, false},
    PolicyInfo{"bytescale", "ByteScale: rings of any size, hybrid data parallelism",
               make_bytescale},
};

}  // namespace

std::span<const PolicyInfo> policies() { return kPolicies; }

const PolicyInfo& policy_info(const std::string& name) {
  std::vector<std::string> names;
  for (const PolicyInfo& policy : kPolicies) {
    if (name == policy.name) return policy;
    names.emplace_back(policy.name);
  }
  throw InputError("policy '{}' is not known; known are: {}", name, fmt::join(names, ", "));
}

std::unique_ptr<Policy> make_policy(const std::string& name, const PolicySetup& setup) {
  const PolicyInfo& policy = policy_info(name);
  if (!policy.unlike_nodes && !setup.model.cluster.groups.empty()) {
    throw InfeasibleError(
        "infeasible: policy '{}' lays pipelines over like nodes alone, cluster '{}' has {} groups "
        "of nodes; hydraulis plans for them",
        name, setup.model.cluster.name, setup.model.cluster.groups.size());
  }
  return policy.make(setup);
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
