#include "costmodel/collective_cost.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr const char* kLinks = "links";
constexpr double kMicro = 1e-6;
constexpr double kGiga = 1e9;
constexpr int kProtocols = 3;  ///< LL, LL128, Simple
constexpr std::array kNcclProtocols = {CollectiveProtocol::ll, CollectiveProtocol::ll128,
                                       CollectiveProtocol::simple};

using Row = std::array<double, kProtocols>;

// NCCL's table, in microseconds (facts: NVIDIA/nccl, src/graph/tuning.cc).
constexpr Row kRingCall = {6.6, 14, 8.4};
constexpr Row kTreeCall = {6.8, 14, 8.4};
constexpr Row kRingInside = {0.6, 1.9, 3.4};
constexpr Row kTreeInside = {0.6, 1.25, 4.0};
constexpr Row kRingBetween = {2.7, 4, 14};
constexpr Row kTreeBetween = {5, 8.5, 14};
constexpr double kSimpleInside = 3.4;
constexpr double kSimpleBetween = 14;
constexpr double kManyNodesRing = 1.4;  ///< latency of all-reduce rings under Simple

/// Most GB/s under LL on one, two and more nodes.
constexpr std::array<double, 3> kMostLowLatencyAmpere = {87.7, 22.5, 19};
constexpr std::array<double, 3> kMostLowLatencyHopper = {141, 45, 35};
constexpr double kLowLatencyShare = 0.5;
constexpr double kLowLatency128Share = 0.92;
constexpr double kTreeShare = 0.92;
constexpr double kTreeLowLatency = 1 / 3.8;
constexpr double kTreeLowLatency128Near = 7.0 / 9;
constexpr double kTreeLowLatency128Far = 120.0 / 128;

/// What trees reach of their bandwidth by size, 64 B · 2^i.
constexpr int kTreeSizes = 24;
constexpr std::array<std::array<double, kTreeSizes>, kProtocols> kTreeBySize = {{
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
     .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9},
}};

/// log₂ rounded down: the depth of a binary tree.
int depth(int nodes) { return std::bit_width(static_cast<unsigned>(nodes)) - 1; }

/// One group, one network, one protocol; protocols are rows of the table, plain has none.
class Coster {
 public:
  Coster(const GroupPlacement& group, const CollectiveNetwork& network, CollectiveProtocol protocol)
      : group_(group), network_(network), protocol_(protocol) {}

  CollectiveCost ring(Collective operation, double bytes) const {
    const double n = group_.members;
    const double passes = operation == Collective::all_reduce ? 2 : 1;
    const double steps = passes * (n - 1);
    const double far = passes * (group_.nodes - 1);
    const double share = operation == Collective::broadcast ? 1 : steps / n;
    double latency = (steps - far) * inside(kRingInside) + far * between(kRingBetween);
    double bandwidth = bus();
    if (plain()) return made(CollectiveAlgorithm::ring, latency, share * bytes / bandwidth);
    if (protocol_ == CollectiveProtocol::ll) {
      bandwidth = std::min(kLowLatencyShare * bandwidth, most_low_latency());
    }
    if (protocol_ == CollectiveProtocol::ll128) bandwidth *= kLowLatency128Share;
    latency += call(kRingCall);
    const bool plateau = protocol_ == CollectiveProtocol::simple && group_.nodes > 1 &&
                         operation == Collective::all_reduce;
    return made(CollectiveAlgorithm::ring, plateau ? kManyNodesRing * latency : latency,
                share * bytes / bandwidth);
  }

  CollectiveCost tree(double bytes) const {
    const double latency = 2 * ((group_.most_in_node - 1) * inside(kTreeInside) +
                                depth(group_.nodes) * between(kTreeBetween));
    double bandwidth = bus();
    if (!plain()) {
      bandwidth *= kTreeShare * by_size(bytes);
      if (protocol_ == CollectiveProtocol::ll) bandwidth *= kTreeLowLatency;
      if (protocol_ == CollectiveProtocol::ll128) {
        bandwidth *= group_.nodes == 1 ? kTreeLowLatency128Near : kTreeLowLatency128Far;
      }
    }
    return made(CollectiveAlgorithm::tree, latency + call(kTreeCall), 2 * bytes / bandwidth);
  }

  /// One member to all others, one after the other.
  CollectiveCost pairwise(double bytes) const {
    const double n = group_.members;
    const double near = group_.fewest_in_node - 1;
    const double far = n - group_.fewest_in_node;
    double seconds = 0;
    if (near > 0) seconds += near * bytes / n / network_.inside.bandwidth_bytes_per_second;
    if (far > 0) seconds += far * bytes / n * group_.fewest_in_node / node_bandwidth();
    return made(CollectiveAlgorithm::pairwise,
                call(kRingCall) + near * inside(kRingInside) + far * between(kRingBetween),
                seconds);
  }

  CollectiveCost send(double bytes) const {
    const bool far = group_.nodes > 1;
    const LinkSpec& link = far ? network_.between : network_.inside;
    return made(CollectiveAlgorithm::pairwise,
                call(kRingCall) + (far ? between(kRingBetween) : inside(kRingInside)),
                bytes / link.bandwidth_bytes_per_second);
  }

 private:
  bool plain() const { return protocol_ == CollectiveProtocol::plain; }
  std::size_t row() const {
    return static_cast<std::size_t>(protocol_) - static_cast<std::size_t>(CollectiveProtocol::ll);
  }
  double call(const Row& table) const {
    return plain() ? 0 : network_.latency_scale * kMicro * table[row()];
  }
  double inside(const Row& table) const {
    return network_.inside.latency_seconds * (plain() ? 1 : table[row()] / kSimpleInside);
  }
  double between(const Row& table) const {
    return network_.between.latency_seconds * (plain() ? 1 : table[row()] / kSimpleBetween);
  }

  /// Of a ring through the nodes: every member of a node brings its network card.
  double bus() const {
    const double near = network_.inside.bandwidth_bytes_per_second;
    const double far = node_bandwidth();
    if (group_.nodes == 1) return near;
    return group_.most_in_node == 1 ? far : std::min(near, far);
  }

  /// Of the network cards that a node's members have.
  double node_bandwidth() const {
    const double devices = group_.fewest_in_node * network_.between.bandwidth_bytes_per_second;
    if (!(network_.card_bytes_per_second > 0)) return devices;
    const int most = network_.cards_per_node > 0 ? network_.cards_per_node : group_.fewest_cards;
    return std::min(devices, std::min(most, group_.fewest_cards) * network_.card_bytes_per_second);
  }

  double most_low_latency() const {
    const auto& most = network_.generation == NcclGeneration::ampere ? kMostLowLatencyAmpere
                                                                     : kMostLowLatencyHopper;
    return kGiga * most[static_cast<std::size_t>(std::min(group_.nodes, 3) - 1)];
  }

  double by_size(double bytes) const {
    const auto& table = kTreeBySize[row()];
    const double at = std::clamp(std::log2(std::max(bytes, 64.0) / 64), 0.0, kTreeSizes - 1.0);
    const auto low = std::min(static_cast<std::size_t>(at), std::size_t{kTreeSizes - 2});
    const double part = at - static_cast<double>(low);
    return std::pow(table[low], 1 - part) * std::pow(table[low + 1], part);
  }

  CollectiveCost made(CollectiveAlgorithm algorithm, double latency, double transfer) const {
    return {latency, transfer, algorithm, protocol_};
  }

  const GroupPlacement& group_;
  const CollectiveNetwork& network_;
  CollectiveProtocol protocol_;
};

/// The least over NCCL's protocols, or the links as they are.
template <typename Cost>
CollectiveCost least(const GroupPlacement& group, const CollectiveNetwork& network, Cost cost) {
  if (network.generation == NcclGeneration::none) {
    return cost(Coster(group, network, CollectiveProtocol::plain));
  }
  CollectiveCost best;
  bool first = true;
  for (const CollectiveProtocol protocol : kNcclProtocols) {
    const CollectiveCost one = cost(Coster(group, network, protocol));
    if (std::exchange(first, false) || one.seconds() < best.seconds()) best = one;
  }
  return best;
}

CollectiveCost ring(Collective operation, const GroupPlacement& group, double bytes,
                    const CollectiveNetwork& network) {
  return least(group, network, [&](const Coster& c) { return c.ring(operation, bytes); });
}

/// Messages of one peer to another are of NCCL's Simple kind.
CollectiveProtocol message_protocol(const CollectiveNetwork& network) {
  return network.generation == NcclGeneration::none ? CollectiveProtocol::plain
                                                    : CollectiveProtocol::simple;
}

CollectiveCost pairwise(const GroupPlacement& group, double bytes,
                        const CollectiveNetwork& network) {
  return Coster(group, network, message_protocol(network)).pairwise(bytes);
}

CollectiveCost hierarchical(Collective operation, const GroupPlacement& group, double bytes,
                            const CollectiveNetwork& network) {
  const GroupPlacement inside = even_placement(group.most_in_node, 1);
  // All rings between nodes run at once, so one has its share of the cards.
  CollectiveNetwork shared = network;
  if (network.card_bytes_per_second > 0) {
    const double share = static_cast<double>(group.fewest_cards) / group.fewest_in_node;
    shared.between.bandwidth_bytes_per_second =
        std::min(network.between.bandwidth_bytes_per_second, share * network.card_bytes_per_second);
    shared.card_bytes_per_second = 0;
  }
  const GroupPlacement between = even_placement(group.nodes, group.nodes);
  CollectiveCost total;
  const auto add = [&total](const CollectiveCost& part) {
    total.latency_seconds += part.latency_seconds;
    total.transfer_seconds += part.transfer_seconds;
    total.protocol = part.protocol;
  };
  const auto rings = [&](Collective part, const GroupPlacement& members, double share) {
    if (members.members > 1) add(ring(part, members, share, shared));
  };
  if (operation == Collective::all_to_all) {
    if (inside.members > 1) add(pairwise(inside, bytes, network));
    add(pairwise(between, bytes, shared));
  } else if (operation == Collective::all_reduce) {
    rings(Collective::reduce_scatter, inside, bytes);
    rings(Collective::all_reduce, between, bytes / group.fewest_in_node);
    rings(Collective::all_gather, inside, bytes);
  } else {
    rings(operation, inside, bytes);
    rings(operation, between, bytes / group.fewest_in_node);
  }
  total.algorithm = CollectiveAlgorithm::hierarchical;
  return total;
}

bool has_hierarchy(Collective operation, const GroupPlacement& group) {
  return group.nodes > 1 && group.most_in_node > 1 && operation != Collective::broadcast;
}

void check(const GroupPlacement& group, double bytes, const CollectiveNetwork& network) {
  if (!(bytes >= 0) || !std::isfinite(bytes)) {
    throw InputError("collective: {} bytes, expected a finite number of 0 or more", bytes);
  }
  if (group.members < 1 || group.nodes < 1 || group.nodes > group.members ||
      group.fewest_in_node < 1 || group.most_in_node < group.fewest_in_node) {
    throw InputError(
        "collective: {} members in {} nodes, {} to {} in each, expected at least one in every node",
        group.members, group.nodes, group.fewest_in_node, group.most_in_node);
  }
  const bool near = group.most_in_node > 1;
  if ((near && !(network.inside.bandwidth_bytes_per_second > 0)) ||
      (group.nodes > 1 && !(network.between.bandwidth_bytes_per_second > 0))) {
    throw InputError("collective: links of {} and {} bytes/s, expected numbers above 0",
                     network.inside.bandwidth_bytes_per_second,
                     network.between.bandwidth_bytes_per_second);
  }
}

}  // namespace

CollectiveCost collective_cost(Collective operation, const GroupPlacement& group, double bytes,
                               const CollectiveNetwork& network, CollectiveAlgorithm algorithm) {
  check(group, bytes, network);
  if (group.members == 1) return {};
  using Algorithm = CollectiveAlgorithm;
  const bool any = algorithm == Algorithm::automatic;
  const bool levels = has_hierarchy(operation, group);
  if (operation == Collective::send) {
    return Coster(group, network, message_protocol(network)).send(bytes);
  }
  CollectiveCost best = operation == Collective::all_to_all
                            ? pairwise(group, bytes, network)
                            : ring(operation, group, bytes, network);
  const auto consider = [&](const CollectiveCost& other) {
    if (!any || other.seconds() < best.seconds()) best = other;
  };
  if (operation == Collective::all_reduce && (any || algorithm == Algorithm::tree)) {
    consider(least(group, network, [&](const Coster& c) { return c.tree(bytes); }));
  }
  if (levels && (any || algorithm == Algorithm::hierarchical)) {
    consider(hierarchical(operation, group, bytes, network));
  }
  return best;
}

double message_call_seconds(const CollectiveNetwork& network) {
  return network.generation == NcclGeneration::none
             ? 0
             : network.latency_scale * kMicro * kRingCall.back();
}

std::optional<CollectiveAlgorithm> parse_collectives(const std::string& text,
                                                     const std::string& where) {
  if (text == kLinks) return std::nullopt;
  for (const CollectiveAlgorithm algorithm :
       {CollectiveAlgorithm::automatic, CollectiveAlgorithm::ring, CollectiveAlgorithm::tree,
        CollectiveAlgorithm::hierarchical}) {
    if (text == to_string(algorithm)) return algorithm;
  }
  throw InputError("{}: '{}', expected {}, auto, ring, tree or hierarchical", where, text, kLinks);
}

const char* collectives_name(const std::optional<CollectiveAlgorithm>& algorithm) {
  return algorithm ? to_string(*algorithm) : kLinks;
}

const char* to_string(CollectiveAlgorithm algorithm) {
  constexpr const char* kNames[] = {"auto", "ring", "tree", "hierarchical", "pairwise"};
  return kNames[static_cast<std::size_t>(algorithm)];
}

const char* to_string(CollectiveProtocol protocol) {
  constexpr const char* kNames[] = {"plain", "LL", "LL128", "Simple"};
  return kNames[static_cast<std::size_t>(protocol)];
}

}  // namespace hydraulis
