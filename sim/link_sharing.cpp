#include "sim/link_sharing.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "sim/link_loads.h"
#include "sim/sharing.h"

namespace hydraulis::detail {
namespace {

constexpr std::uint32_t kNobody = kAlone;
/// Loads are sums of shares, so a link that is exactly full may come out a rounding beyond.
constexpr double kFull = 1 + 1e-9;

bool moves_through_network(Op op) {
  return is_send(op) || op == Op::gather_parameters || op == Op::reduce_gradients ||
         op == Op::all_to_all;
}

/// What an instruction at full speed puts on which links: transfers of one stream that load links
/// alike.
struct Flow {
  std::uint32_t stream;  ///< stage · kStreams + stream: its transfers follow one another
  std::vector<LinkLoad> loads;
  double limit = 1;  ///< of its rate: links that no other stream uses
};

class LinkSharer {
 public:
  LinkSharer(const Program& program, const Graph& graph, const Topology& topology,
             double wire_bytes)
      : program_(program),
        graph_(graph),
        topology_(topology),
        wire_bytes_(wire_bytes),
        loads_(program, topology),
        farthest_switch_seconds_(loads_.farthest_switch_seconds()) {}

  Sharing share() {
    std::vector<Transfer> transfers(graph_.activities());
    for (std::size_t s = 0; s < program_.stages.size(); ++s) {
      const auto& instructions = program_.stages[s].instructions;
      for (std::size_t i = 0; i < instructions.size(); ++i) {
        const std::uint32_t activity = graph_.activity[graph_.first_instruction[s] + i];
        if (!moves_through_network(instructions[i].op) || graph_.seconds[activity] <= 0) continue;
        transfers[activity] =
            transfer(static_cast<int>(s), instructions[i], graph_.seconds[activity]);
      }
    }
    Sharing sharing;
    sharing.parts.reserve(graph_.activities());
    sharing.first_part.reserve(graph_.activities() + std::size_t{1});
    const std::vector<std::uint32_t> kinds = kinds_of_flows(sharing);
    for (std::uint32_t activity = 0; activity < graph_.activities(); ++activity) {
      const Transfer& transfer = transfers[activity];
      const auto first = static_cast<std::ptrdiff_t>(sharing.parts.size());
      double alone = graph_.seconds[activity];
      for (const auto& [flow, seconds] : {std::pair{transfer.near, transfer.near_seconds},
                                          std::pair{transfer.far, transfer.far_seconds}}) {
        if (flow == kNobody) continue;
        if (kinds[flow] == kAlone) {
          alone += seconds * (1 / flows_[flow].limit - 1);
        } else {
          sharing.parts.push_back({kinds[flow], seconds});
          alone -= seconds;
        }
      }
      alone = std::max(0.0, alone) + transfer.switch_seconds;
      if (alone > 0) sharing.parts.insert(sharing.parts.begin() + first, {kAlone, alone});
      sharing.first_part.push_back(static_cast<std::uint32_t>(sharing.parts.size()));
    }
    return sharing;
  }

 private:
  struct Transfer {
    double switch_seconds = 0;  ///< of switches on the way, which durations do not have
    std::uint32_t near = kNobody;
    std::uint32_t far = kNobody;
    double near_seconds = 0;
    double far_seconds = 0;
  };

  Transfer transfer(int stage, const Instruction& instruction, double seconds) {
    Transfer result;
    const auto bytes = [&](std::int64_t count) { return wire_bytes_ * static_cast<double>(count); };
    result.near_seconds = bytes(instruction.intra_node_bytes) /
                          topology_.links[port_link(topology_, 0, true)].bytes_per_second;
    result.far_seconds = bytes(instruction.inter_node_bytes) /
                         topology_.links[lane_link(topology_, 0, true)].bytes_per_second;
    // Where a transfer was measured to be faster than its links, its bytes take all of its time.
    const double moving = result.near_seconds + result.far_seconds;
    if (moving > seconds) {
      result.near_seconds *= seconds / moving;
      result.far_seconds *= seconds / moving;
    }
    if (result.near_seconds > 0) result.near = flow(stage, instruction, false);
    if (result.far_seconds > 0) {
      result.far = flow(stage, instruction, true);
      result.switch_seconds = instruction.transfers * switch_seconds(stage, instruction);
    }
    return result;
  }

  double switch_seconds(int stage, const Instruction& instruction) const {
    if (topology_.levels.empty()) return 0;
    return is_send(instruction.op) ? loads_.switch_seconds(stage, instruction.peer)
                                   : farthest_switch_seconds_;
  }

  std::uint32_t flow(int stage, const Instruction& instruction, bool across) {
    const bool reshards =
        instruction.op == Op::gather_parameters || instruction.op == Op::reduce_gradients;
    std::pair<int, int> with{instruction.peer, 0};
    if (reshards) with = loads_.owner_stages(instruction.layer_begin, instruction.layer_end);
    const Key key{stage, instruction.op, instruction.stream, with, across};
    // Transfers mostly follow others of the same kind.
    const auto last = last_[across ? 1 : 0];
    if (last != known_.end() && last->first == key) return last->second;
    const auto [found, fresh] = known_.try_emplace(key, static_cast<std::uint32_t>(flows_.size()));
    last_[across ? 1 : 0] = found;
    if (!fresh) return found->second;
    Flow flow;
    flow.stream = static_cast<std::uint32_t>(stage * kStreams) +
                  static_cast<std::uint32_t>(instruction.stream);
    if (is_send(instruction.op)) {
      flow.loads = loads_.send(stage, instruction.peer, across);
    } else if (reshards) {
      flow.loads = loads_.reshard(stage, instruction.layer_begin, instruction.layer_end,
                                  instruction.op == Op::gather_parameters, across);
    } else {
      flow.loads = loads_.exchange(stage, across);
    }
    flows_.push_back(std::move(flow));
    return found->second;
  }

  /// The load of one flow on one link, as a share of what it can carry.
  struct Load {
    std::uint32_t resource;
    std::uint32_t stream;
    std::uint32_t flow;
    double amount;
  };

  std::vector<Load> sorted_loads() const {
    std::vector<Load> loads;
    for (std::uint32_t f = 0; f < flows_.size(); ++f) {
      for (const LinkLoad& load : flows_[f].loads) {
        loads.push_back({load.resource, flows_[f].stream, f,
                         load.bytes_per_second / loads_.capacities()[load.resource]});
      }
    }
    std::sort(loads.begin(), loads.end(), [](const Load& a, const Load& b) {
      return std::tie(a.resource, a.stream, a.flow) < std::tie(b.resource, b.stream, b.flow);
    });
    return loads;
  }

  /// What all streams together can put on a link; of one stream one transfer runs at a time.
  double most_at_once(std::span<const Load> link) const {
    double all = 0;
    double of_stream = 0;
    for (std::size_t i = 0; i < link.size(); ++i) {
      if (i > 0 && link[i].stream != link[i - 1].stream) {
        all += of_stream;
        of_stream = 0;
      }
      of_stream = std::max(of_stream, link[i].amount * flows_[link[i].flow].limit);
    }
    return all + of_stream;
  }

  /// Makes limits of links that one stream has to itself, leaves out those that cannot be filled,
  /// makes one resource of those that are loaded alike, and one kind of flows that then use the
  /// same.
  std::vector<std::uint32_t> kinds_of_flows(Sharing& sharing) {
    const std::vector<Load> loads = sorted_loads();
    std::vector<std::span<const Load>> links;
    for (std::size_t begin = 0, end = 0; begin < loads.size(); begin = end) {
      while (end < loads.size() && loads[end].resource == loads[begin].resource) ++end;
      const auto link = std::span(loads).subspan(begin, end - begin);
      if (link.front().stream != link.back().stream) {
        links.push_back(link);
        continue;
      }
      for (const Load& load : link) {
        if (load.amount > kFull) {
          flows_[load.flow].limit = std::min(flows_[load.flow].limit, 1 / load.amount);
        }
      }
    }
    std::vector<std::vector<ResourceUse>> uses(flows_.size());
    std::map<std::vector<std::pair<std::uint32_t, double>>, std::uint32_t> columns;
    for (const std::span<const Load> link : links) {
      if (most_at_once(link) <= kFull) continue;
      std::vector<std::pair<std::uint32_t, double>> column;
      for (const Load& load : link) column.emplace_back(load.flow, load.amount);
      std::sort(column.begin(), column.end());
      const auto next = static_cast<std::uint32_t>(sharing.capacities.size());
      const auto [at, fresh] = columns.try_emplace(std::move(column), next);
      if (!fresh) continue;
      sharing.capacities.push_back(1);
      for (const auto& [flow, amount] : at->first) uses[flow].push_back({next, amount});
    }
    KindTable table(sharing);
    std::vector<std::uint32_t> kinds;
    kinds.reserve(flows_.size());
    for (std::uint32_t f = 0; f < flows_.size(); ++f) {
      kinds.push_back(table.kind_of(uses[f], flows_[f].limit));
    }
    return kinds;
  }

  const Program& program_;
  const Graph& graph_;
  const Topology& topology_;
  double wire_bytes_;
  LinkLoads loads_;
  double farthest_switch_seconds_;
  std::vector<Flow> flows_;
  using Key = std::tuple<int, Op, StreamKind, std::pair<int, int>, bool>;
  std::map<Key, std::uint32_t> known_;
  std::array<std::map<Key, std::uint32_t>::iterator, 2> last_{known_.end(), known_.end()};
};

}  // namespace

Sharing share_links(const Program& program, const Graph& graph, const Topology& topology,
                    double wire_bytes, const ReplayOptions& options) {
  for (const Stage& stage : program.stages) {
    for (const int device : stage.devices) {
      if (device >= 0 && device < topology.devices()) continue;
      program_fault(options, fmt::format("pipeline {}, stage {}: device {}; expected one of the "
                                         "network's, in [0, {})",
                                         stage.pipeline, stage.index, device, topology.devices()));
    }
  }
  const int owners = program.optimizer.devices();
  if (owners > topology.devices()) {
    program_fault(options, fmt::format("optimizer layout of {} devices on a network of {}", owners,
                                       topology.devices()));
  }
  return LinkSharer(program, graph, topology, wire_bytes).share();
}

}  // namespace hydraulis::detail
