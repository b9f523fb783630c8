#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/collective_cost.h"
#include "costmodel/cost_model.h"
#include "planner/program/program.h"
#include "sim/replay.h"

namespace hydraulis {

/// Whether every transfer has its links to itself or transfers share those of the cluster's network
/// (ReplayOptions::network). `automatic`: they share them where the cluster says that there is
/// something to share: levels, fewer network cards than devices, a limit inside nodes.
enum class NetworkUse : std::uint8_t { automatic, closed_form, flows };
/// "auto", "closed-form" or "flows"; anything else is an InputError that begins with `where`.
NetworkUse parse_network_use(const std::string& text, const std::string& where);
const char* to_string(NetworkUse use);

struct CostingOptions {
  /// Only forward, backward and recomputation take time, as the planner's own makespan has it.
  bool no_communication = false;
  double bandwidth_scale = 1;  ///< of every link; positive
  double latency_scale = 1;    ///< of every link; not negative
  NetworkUse network = NetworkUse::automatic;
  /// Communication by a library's collectives with this algorithm (docs/simulator.md,
  /// "Collectives"); none: every device's bytes over the links as they are.
  std::optional<CollectiveAlgorithm> collectives = {};
};

/// Bytes of device memory that one optimizer step moves for each parameter that a device owns:
/// fp32 gradient, master copy and two moments read, the last three written back, and the bf16 copy
/// written.
inline constexpr double kOptimizerBytesPerParameter = 4 * 4 + 3 * 4 + 2;

/// Seconds of every instruction:
///   - forward: the profile's forward where it tells it from the backward, else kForwardShare of
///     the stage's time for the micro-batch (padding counts in its linear part), backward: the
///     rest; backward_weight: what the forward's products take, as PassCost has it, backward_input:
///     the rest of the backward; recompute: as the forward; a piece of a pass (PassPiece) its share
///     of the whole by layers, so that pieces take what the whole takes;
///   - send, receive: latency + bytes / bandwidth of the link; nothing when the profile says that
///     its times contain them;
///   - gather_parameters, reduce_gradients, all_to_all: latency · messages of the busiest device +
///     its bytes / bandwidth, links inside a node and between nodes one after the other;
///   - gradient_norm, barrier: twice (there and back) a tree over a node's devices and over nodes;
///   - optimizer_step: bytes moved / memory bandwidth.
/// With `options.collectives` these are collectives of a library: detail::CommunicationCost.
/// Where operators were measured their curves take the place of links and memory bandwidth:
/// messages by the curve of a send, numbers in the width that was measured; a gather also copies
/// what a device owns itself, a reduction adds what every device holds, the norm squares what it
/// owns.
/// Without contention, which is the replay's matter (replay_options). Throws InputError when the
/// profile does not know a scheme, for options out of range, and for offload and fetch (the cluster
/// has no host link).
Durations instruction_durations(const Program& program, const CostModel& model,
                                const CostingOptions& options = {});

/// Whether replays on the cluster share links; never where devices share cores.
bool shares_links(const ClusterSpec& cluster, const CostingOptions& options);

/// What a replay of those durations shares: the cores of nodes whose devices are processes, or with
/// transfers that share it the links of the network; nothing without communication.
ReplayOptions replay_options(const CostModel& model, const CostingOptions& options);

/// What the times are taken to contain and which bandwidths are assumed, one statement a line, to
/// be printed beside results.
std::vector<std::string> costing_assumptions(const CostModel& model,
                                             const CostingOptions& options = {});

}  // namespace hydraulis
