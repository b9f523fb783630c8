#include "costmodel/analytic.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "costmodel/build_cost_model.h"
#include "costmodel/compose_operations.h"

namespace hydraulis {
namespace {

constexpr int kContextDegrees[] = {1, 2, 4, 8};
constexpr int kTensorDegrees[] = {1, 2, 4, 8, 16};
constexpr int kPipelineDegrees[] = {1, 2, 3, 4, 6, 8};
constexpr double kBf16 = 2;
constexpr int kHeadDimStep = 32;  ///< flash attention's kernels pad the head dimension to it
constexpr double kMiB = 1024.0 * 1024.0;

/// Collectives of one tensor-parallel group run as rings over all of a node's network cards at
/// once.
double tensor_bandwidth(const ClusterSpec& cluster, int tp) {
  const double intra = cluster.intra_node.bandwidth_bytes_per_second;
  if (tp <= cluster.devices_per_node) return intra;
  return std::min(intra, cluster.inter_node.bandwidth_bytes_per_second * cluster.devices_per_node);
}

/// Why a tensor-parallel degree cannot be used, or "".
std::string tensor_degree_problem(const ModelSpec& model, const ClusterSpec& cluster, int tp) {
  const int node = cluster.devices_per_node;
  if (tp > cluster.devices()) return fmt::format("the cluster has {} devices", cluster.devices());
  if (tp > node ? tp % node != 0 : node % tp != 0) {
    return fmt::format("groups of {} do not fill nodes of {} devices evenly", tp, node);
  }
  return tensor_parallel_problem(model, tp);
}

SchemeCoefficients coefficients(const ModelSpec& model, const ClusterSpec& cluster,
                                const Scheme& scheme) {
  const detail::Calibration& fit = detail::calibration();
  const detail::IdealTimes ideal = detail::ideal_times(model, cluster, scheme);
  return {scheme, fit.attention_factor * ideal.attention_per_token2,
          fit.matrix_factor * ideal.matrices_per_token +
              fit.communication_factor * ideal.communication_per_token,
          fit.seconds_per_layer * ideal.layers + ideal.ring_latency};
}

std::vector<std::string> limits_of(const ModelSpec& model, const ClusterSpec& cluster) {
  const detail::Calibration& fit = detail::calibration();
  std::vector<std::string> limits = {
      fmt::format(
          "analytic: data-sheet rates with the efficiency of the A800 runs (matrices {:.0f} "
          "%, attention {:.0f} %, link bandwidth {:.0f} %, {:.2f} ms a layer and "
          "micro-batch)",
          100 / fit.matrix_factor, 100 / fit.attention_factor, 100 / fit.communication_factor,
          fit.seconds_per_layer * 1e3),
      fmt::format(
          "analytic: on the {} measured A800 rows this is off by {:.0f} % (per token), {:.0f} "
          "% (per token squared) and {:.0f} % (constant) on average; context parallelism "
          "and recomputation were never measured",
          fit.rows, fit.mean_error_b * 100, fit.mean_error_a * 100, fit.mean_error_c * 100),
      "analytic: the output head counts on every stage (the slowest one decides); ring attention's "
      "transfers are not overlapped; context parallelism is taken to be balanced",
      "tensor- and context-parallel communication is inside the times; stage-to-stage transfers "
      "and "
      "gradient traffic are not",
      cluster.device.reserved_bytes >= 0
          ? fmt::format("memory: {:.2f} GiB of a device are reserved, as the cluster says",
                        cluster.device.reserved_bytes / (1024 * kMiB))
          : "memory: 5000 MiB constant and 6 GiB margin as measured on the A800",
  };
  if (model.kv_heads < kTensorDegrees[std::size(kTensorDegrees) - 1]) {
    limits.push_back(
        fmt::format("tensor-parallel degrees above {} repeat key/value heads", model.kv_heads));
  }
  return limits;
}

}  // namespace

namespace detail {

IdealTimes ideal_times(const ModelSpec& model, const ClusterSpec& cluster, const Scheme& scheme) {
  const bool again = scheme.recompute == Recompute::full;
  const double layers = static_cast<double>(model.layers) / scheme.pp;
  const double peak = cluster.device.peak_flops;
  const double shards = static_cast<double>(scheme.tp) * scheme.cp;
  const int padded = (model.head_dim + kHeadDimStep - 1) / kHeadDimStep * kHeadDimStep;
  const double query = static_cast<double>(model.heads) * padded;
  IdealTimes ideal;
  // Flash attention's backward does five products where the forward does two: 1 + 2.5 forwards.
  ideal.attention_per_token2 = (again ? 4.5 : 3.5) * 2 * query * layers / (shards * peak);
  ideal.matrices_per_token =
      ((again ? 8.0 : 6.0) * static_cast<double>(layer_matrix_elements(model)) * layers +
       6.0 * static_cast<double>(embedding_parameters(model))) /
      (shards * peak);
  ideal.layers = layers * (again ? 4.0 / 3.0 : 1.0);
  if (scheme.tp > 1) {
    // Two all-reduces (or all-gather and reduce-scatter pairs) in the forward, two in the backward.
    const double collectives = again ? 6 : 4;
    const double bytes = collectives * 2 * kBf16 * model.hidden * (scheme.tp - 1) / scheme.tp;
    ideal.communication_per_token +=
        bytes * layers / scheme.cp / tensor_bandwidth(cluster, scheme.tp);
  }
  if (scheme.cp > 1) {
    const StageCost ring = ring_attention_traffic(model, cluster, scheme);
    ideal.communication_per_token += ring.b;
    ideal.ring_latency = ring.c;
  }
  return ideal;
}

StageCost ring_attention_traffic(const ModelSpec& model, const ClusterSpec& cluster,
                                 const Scheme& scheme) {
  if (scheme.cp == 1) return {};
  // Each device sends its keys and values cp − 1 times; in the backward their gradients as well.
  const bool across = scheme.tp * scheme.cp > cluster.devices_per_node;
  const LinkSpec& link = across ? cluster.inter_node : cluster.intra_node;
  const double layers = static_cast<double>(model.layers) / scheme.pp;
  const double kv_heads = std::max(1.0, static_cast<double>(model.kv_heads) / scheme.tp);
  const double passes = scheme.recompute == Recompute::full ? 4 : 3;
  const double bytes = passes * 2 * kBf16 * kv_heads * model.head_dim;
  const double steps = scheme.cp - 1;
  return {0, bytes * steps * layers / scheme.cp / link.bandwidth_bytes_per_second,
          passes * steps * layers * link.latency_seconds};
}

}  // namespace detail

Profile analytic_profile(const ModelSpec& model, const ClusterSpec& cluster) {
  check_model(model, "model " + model.name);
  Profile profile;
  profile.name = fmt::format("analytic-{}-{}", cluster.device.name, model.name);
  profile.device = cluster.device.name;
  profile.origin = fmt::format("analytic: {} ({}), efficiency calibrated on A800",
                               cluster.device.name, cluster.origin);
  profile.analytic = true;
  profile.model = model;
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    for (const int cp : kContextDegrees) {
      for (const int tp : kTensorDegrees) {
        if (!tensor_degree_problem(model, cluster, tp).empty()) continue;
        for (const int pp : kPipelineDegrees) {
          Scheme scheme;
          scheme.cp = cp;
          scheme.tp = tp;
          scheme.pp = pp;
          scheme.recompute = recompute;
          if (pp > model.layers || scheme.devices() > cluster.devices()) continue;
          profile.schemes.push_back(coefficients(model, cluster, scheme));
        }
      }
    }
  }
  if (cluster.device.reserved_bytes >= 0) {
    profile.memory.safety_bytes = cluster.device.reserved_bytes;
  } else {
    profile.memory.constant_gap_bytes = 5000 * kMiB;
    profile.memory.safety_bytes = 6 * 1024 * kMiB;
  }
  profile.contains_tensor_parallel_communication = true;
  profile.contains_pipeline_communication = false;
  profile.limits = limits_of(model, cluster);
  return profile;
}

std::vector<std::string> excluded_schemes(const ModelSpec& model, const ClusterSpec& cluster) {
  std::vector<std::string> reasons;
  for (const int tp : kTensorDegrees) {
    const std::string problem = tensor_degree_problem(model, cluster, tp);
    if (!problem.empty()) reasons.push_back(fmt::format("tp={}: {}", tp, problem));
  }
  for (const int pp : kPipelineDegrees) {
    if (pp > model.layers) {
      reasons.push_back(fmt::format("pp={}: the model has only {} layers", pp, model.layers));
    } else if (pp > cluster.devices()) {
      reasons.push_back(fmt::format("pp={}: the cluster has {} devices", pp, cluster.devices()));
    }
  }
  return reasons;
}

}  // namespace hydraulis
