#include "sim/sharing.h"

#include <algorithm>
#include <map>

namespace hydraulis::detail {
namespace {

bool moves_data(const Instruction& instruction) {
  return instruction.stream != StreamKind::compute;
}

}  // namespace

std::uint32_t KindTable::kind_of(const std::vector<ResourceUse>& uses, double limit) {
  if (uses.empty()) return kAlone;
  Key key{limit, {}};
  key.second.reserve(uses.size());
  for (const ResourceUse& use : uses) key.second.emplace_back(use.resource, use.amount);
  const auto [at, fresh] = kinds_.try_emplace(std::move(key), sharing_.kinds());
  if (fresh) {
    sharing_.uses.insert(sharing_.uses.end(), uses.begin(), uses.end());
    sharing_.first_use.push_back(static_cast<std::uint32_t>(sharing_.uses.size()));
    sharing_.limits.push_back(limit);
  }
  return at->second;
}

Sharing share_cores(const Program& program, const Graph& graph, int cores_per_node) {
  const int per_node = std::max(1, program.devices_per_node);
  const double threads = std::max(1, cores_per_node / per_node);
  const auto stages = static_cast<std::uint32_t>(program.stages.size());
  const int nodes = (program.devices + per_node - 1) / per_node;
  Sharing sharing;
  sharing.capacities.assign(stages, threads);  // of one device of the stage
  sharing.capacities.resize(stages + static_cast<std::size_t>(nodes), cores_per_node);

  std::vector<std::map<std::uint32_t, double>> devices_on(stages);  // by node's resource
  for (std::uint32_t s = 0; s < stages; ++s) {
    for (const int device : program.stages[s].devices) {
      devices_on[s][stages + static_cast<std::uint32_t>(device / per_node)] += 1;
    }
  }
  std::vector<std::vector<ResourceUse>> uses(graph.activities());
  const auto take = [&](std::uint32_t activity, std::uint32_t resource, double amount) {
    for (ResourceUse& use : uses[activity]) {
      if (use.resource != resource) continue;
      use.amount += amount;
      return;
    }
    uses[activity].push_back({resource, amount});
  };
  for (std::uint32_t s = 0; s < stages; ++s) {
    for (std::size_t i = 0; i < program.stages[s].instructions.size(); ++i) {
      const Instruction& instruction = program.stages[s].instructions[i];
      if (is_global(instruction.op)) continue;
      const double cores = moves_data(instruction) ? 1 : threads;
      const std::uint32_t activity = graph.activity[graph.first_instruction[s] + i];
      take(activity, s, cores);
      for (const auto& [node, devices] : devices_on[s]) take(activity, node, devices * cores);
    }
  }
  KindTable kinds(sharing);
  for (std::uint32_t activity = 0; activity < graph.activities(); ++activity) {
    if (graph.seconds[activity] > 0) {
      sharing.parts.push_back({kinds.kind_of(uses[activity]), graph.seconds[activity]});
    }
    sharing.first_part.push_back(static_cast<std::uint32_t>(sharing.parts.size()));
  }
  return sharing;
}

}  // namespace hydraulis::detail
