#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "costmodel/cluster_spec.h"
#include "costmodel/operator_profile.h"

namespace hydraulis {

/// How a collective moves its data.
enum class CollectiveAlgorithm : std::uint8_t {
  automatic,     ///< the least of those below that the operation has, as NCCL's tuner chooses
  ring,          ///< all members in one ring through the nodes
  tree,          ///< all-reduce: chains inside nodes, a double binary tree over nodes
  hierarchical,  ///< rings inside nodes, and rings between nodes of those in equal places
  pairwise,      ///< all-to-all and send: one message to each other member, one after the other
};

/// NCCL's wire formats; `plain` is none of them: the links as they are.
enum class CollectiveProtocol : std::uint8_t { plain, ll, ll128, simple };

/// Whose cost table applies.
enum class NcclGeneration : std::uint8_t { none, ampere, hopper, blackwell };

/// Where the members of a group sit.
struct GroupPlacement {
  int members = 1;
  int nodes = 1;
  int fewest_in_node = 1;  ///< members in the node that has fewest
  int most_in_node = 1;
  int fewest_cards = 1;  ///< network cards that the members of a node have, where that is least
  bool operator==(const GroupPlacement&) const = default;
};

/// The placement of these devices; a device named twice counts once, device d of a node has card
/// ⌊d · cards / devices⌋ of it (0 cards: one each). Throws InputError without devices, for negative
/// ones and for nodes of no device.
GroupPlacement group_placement(std::span<const int> devices, int devices_per_node,
                               int cards_per_node = 0);
/// `members` spread over `nodes` as evenly as they go, each with a card of its own.
GroupPlacement even_placement(int members, int nodes);

/// What a group's messages run over.
struct CollectiveNetwork {
  LinkSpec inside;                   ///< of a device, to others in its node
  LinkSpec between;                  ///< of a device, to others in other nodes
  double card_bytes_per_second = 0;  ///< of a network card; 0: as `between`
  int cards_per_node = 0;            ///< 0: one for each device
  NcclGeneration generation = NcclGeneration::none;
  double latency_scale = 1;  ///< of NCCL's own latencies; those of the links have theirs in them
};

/// The links of a cluster, what-if scales applied. Where the devices are of a kind that NCCL's
/// table knows (by name: a100, a800, h100, h800, h200, h20, b200, b300, gb200, …) and do not
/// compute on the node's cores, its latencies and efficiencies apply. Of a data sheet's bandwidths
/// NCCL counts 20.0, 20.6 and 40.1 GB/s for an NVLink of 25, 25 and 50 and 12 GB/s for 100 Gb/s of
/// network; bandwidths of a cluster whose origin is "measured" are taken as they are.
CollectiveNetwork collective_network(const ClusterSpec& cluster, double latency_scale = 1,
                                     double bandwidth_scale = 1);

struct CollectiveCost {
  double latency_seconds = 0;
  double transfer_seconds = 0;  ///< what the bytes take
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  CollectiveProtocol protocol = CollectiveProtocol::plain;

  double seconds() const { return latency_seconds + transfer_seconds; }
};

/// Seconds of one collective on an otherwise idle network; `bytes` as CollectiveSample counts them.
/// With n members, k of them in each of m nodes, links of bandwidth w inside and v between (where
/// members share network cards, k·v is what the cards carry):
///   ring:          share·bytes / min(w, k·v), share 2(n−1)/n for all-reduce, (n−1)/n for
///                  all-gather and reduce-scatter, 1 for broadcast; 2(n−1), n−1 and n−1 steps, of
///                  which 2(m−1), m−1 and m−1 go between nodes;
///   tree:          2·bytes / min(w, k·v); 2(k−1) steps inside and 2·log₂m between nodes;
///   hierarchical:  rings of k with all bytes and rings of m with bytes/k, one after the other (for
///                  all-to-all: everything once inside and once between);
///   pairwise:      bytes/n to each of the k−1 others in the node and the n−k elsewhere.
/// NCCL's prior (its public cost table, src/graph/tuning.cc): a call takes 6.6, 14 or 8.4 µs under
/// LL, LL128 or Simple (tree: 6.8, 14, 8.4), a link's latency is that of a ring step under Simple
/// and the other steps are to it as 0.6 and 1.9 to 3.4 inside a node (tree: 0.6, 1.25, 4.0) and 2.7
/// and 4 to 14 between nodes (tree: 5, 8.5, 14); bandwidth under LL is half, at most 87.7, 22.5 and
/// 19 GB/s (Ampere; 141, 45 and 35 later) on one, two and more nodes, under LL128 0.92; a tree has
/// 0.92 of it, under LL 1/3.8, under LL128 7/9 in a node and 120/128 over nodes, less at middle
/// sizes (its table, interpolated so that more bytes never take less time); all-reduce rings under
/// Simple over several nodes have 1.4 times the latency. The least protocol is taken. Limits of
/// single channels are left out: the number of channels is not known.
/// An algorithm that the operation does not have counts as its ring, or pairwise. One member: no
/// time. Throws InputError for negative or not finite bytes, fewer than one member or node, and
/// links without bandwidth.
CollectiveCost collective_cost(Collective operation, const GroupPlacement& group, double bytes,
                               const CollectiveNetwork& network,
                               CollectiveAlgorithm algorithm = CollectiveAlgorithm::automatic);

/// What a call that sends messages takes beside them: NCCL's under Simple, else nothing.
double message_call_seconds(const CollectiveNetwork& network);

/// How a study times communication: "links" (nothing: bytes over the links as they are), "auto",
/// "ring", "tree" or "hierarchical". Throws InputError naming `where`.
std::optional<CollectiveAlgorithm> parse_collectives(const std::string& text,
                                                     const std::string& where);
/// The inverse.
const char* collectives_name(const std::optional<CollectiveAlgorithm>& algorithm);

const char* to_string(CollectiveAlgorithm algorithm);
const char* to_string(CollectiveProtocol protocol);
const char* to_string(NcclGeneration generation);

}  // namespace hydraulis
