#pragma once

#include <cstdint>
#include <string>

#include "costmodel/cost_model.h"

// Optimizer states in the memory of the nodes (ZeRO-Offload; Ren et al., 2021): fp32 masters and
// moments never are on a device. Summed gradients go down bucket by bucket, the processors update
// one bucket while the next comes down and the last one's rounded parameters go up.
namespace hydraulis {

/// Elements of a bucket: 16 MiB of f32, past what a copy needs to reach its link's bandwidth.
inline constexpr std::int64_t kHostBucketElements = std::int64_t{4} << 20;
/// Bytes of a parameter of the fixed layout that stay on its device: the f32 sum of its gradients
/// and what is sent to the stages, in bf16.
inline constexpr double kHostStatesDeviceBytes = 4 + 2;
/// Bytes of it in host memory: the f32 master and two moments.
inline constexpr double kHostStatesBytes = 3 * 4;
/// Host memory that its update reads and writes: gradient, master and moments in, master and
/// moments out, then the rounding.
inline constexpr double kHostUpdateBytes = 4 * 4 + 3 * 4 + 4 + 2;

/// Page-locked host memory of a rank that owns `elements` of the fixed layout: states and staging.
double host_state_bytes(double elements);

/// Parameters of the fullest share of the fixed layout, the devices taken as equal.
double owned_elements(const CostModel& model);

/// Seconds of an optimizer step on the host: two copies and the update of a bucket, which overlap
/// with those of the next, n equal buckets; links and memory as the cluster has them. 0 when the
/// cluster does not describe its host.
double host_step_seconds(const ClusterSpec& cluster, double elements);

/// What host_step_seconds() assumes, for people.
std::string host_step_text(const ClusterSpec& cluster);

/// Makes it a model of training with optimizer states in host memory: memory and time count so.
/// Throws InputError when the cluster does not describe its host, when its devices are processes on
/// the host, and for the published memory model, which has the states on the devices;
/// InfeasibleError when a node's memory does not hold them.
void keep_states_on_host(CostModel& model);

const char* to_string(OptimizerStates states);
/// Throws InputError naming `where` for anything but device and host.
OptimizerStates parse_optimizer_states(const std::string& text, const std::string& where);

}  // namespace hydraulis
