#pragma once

#include <algorithm>
#include <cstdint>

#include "costmodel/cluster_spec.h"
#include "costmodel/compose_operations.h"
#include "costmodel/operator_profile.h"

namespace hydraulis::testing {

/// A machine whose kernels follow known laws, to measure without measuring.
struct SyntheticMachine {
  double flops = 50e9;         ///< of products and attention
  double bandwidth = 10e9;     ///< bytes a second of row-wise kernels
  double overhead = 2e-6;      ///< of every call
  double saturation = 24;      ///< tokens: products run at T/(T + saturation) of the peak
  double link_latency = 5e-6;  ///< of a message and of each step of a ring
  double link_bandwidth = 4e9;

  double seconds(const KernelShape& shape, double tokens, double sum_squares) const {
    if (shape.inputs > 0) {
      return overhead + 2 * static_cast<double>(shape.inputs) * static_cast<double>(shape.outputs) *
                            (tokens + saturation) / flops;
    }
    if (is_attention(shape.kernel)) {
      const double factor = shape.kernel == Kernel::attention ? 2 : 5;
      const double columns = static_cast<double>(shape.heads) * shape.head_dim;
      return overhead + factor * columns * (sum_squares + 40 * tokens) / flops;
    }
    return overhead + 12 * tokens * static_cast<double>(shape.width) / bandwidth;
  }

  double seconds(Collective operation, int ranks, double bytes) const {
    const double n = ranks;
    switch (operation) {
      case Collective::send:
        return link_latency + bytes / link_bandwidth;
      case Collective::all_reduce:
        return 2 * (n - 1) * link_latency + 2 * (n - 1) / n * bytes / link_bandwidth;
      default:
        return (n - 1) * link_latency + (n - 1) / n * bytes / link_bandwidth;
    }
  }
};

inline Timing exactly(double seconds) { return {seconds, seconds, seconds, 9, true}; }

inline ModelSpec tiny_model() {
  ModelSpec model;
  model.name = "tiny";
  model.layers = 6;
  model.hidden = 256;
  model.ffn_hidden = 704;
  model.heads = 8;
  model.kv_heads = 4;
  model.head_dim = 32;
  model.vocab = 2048;
  return model;
}

inline ClusterSpec tiny_cluster(int nodes, int devices_per_node) {
  ClusterSpec cluster;
  cluster.name = "tiny";
  cluster.device = {"synthetic", 8e9, 50e9, 10e9, 1e8};
  cluster.nodes = nodes;
  cluster.devices_per_node = devices_per_node;
  cluster.intra_node = {2e9, 7e-6};
  cluster.inter_node = {1e9, 20e-6};
  return cluster;
}

/// Every kernel of the model under tp 1, 2 and 4 up to `most_tokens`, and collectives of 2 and 4
/// ranks of one node.
inline OperatorProfile measure(const SyntheticMachine& machine, const ModelSpec& model,
                               std::int64_t most_tokens = 4096) {
  OperatorProfile profile;
  profile.name = "synthetic";
  profile.origin = "laws of a test";
  profile.machine.device = "synthetic";
  profile.machine.backend = "cpu";
  profile.machine.ranks = 4;
  profile.machine.peak_flops = machine.flops;
  profile.machine.memory_bytes_per_second = machine.bandwidth;
  const auto add = [&](const KernelShape& shape, std::int64_t tokens, std::int64_t length) {
    KernelSample sample;
    sample.shape = shape;
    sample.tokens = tokens;
    sample.length = length;
    sample.time = exactly(
        machine.seconds(shape, static_cast<double>(tokens), static_cast<double>(tokens * length)));
    profile.kernels.push_back(sample);
  };
  const auto seen = [&](const KernelShape& shape) {
    return std::any_of(profile.kernels.begin(), profile.kernels.end(),
                       [&](const KernelSample& known) { return known.shape == shape; });
  };
  for (const int tp : {1, 2, 4}) {
    for (const KernelShape& shape : kernel_shapes(model, tp)) {
      if (seen(shape)) continue;
      for (std::int64_t tokens = 16; tokens <= most_tokens; tokens *= 2) {
        if (!is_attention(shape.kernel)) {
          add(shape, tokens, 0);
          continue;
        }
        for (std::int64_t length = 16; length <= tokens; length *= 2) add(shape, tokens, length);
      }
    }
  }
  for (const Kernel kernel : {Kernel::adamw, Kernel::sum_squares}) {
    KernelShape shape;
    shape.kernel = kernel;
    shape.width = 1024;
    for (std::int64_t rows = 1; rows <= 4096; rows *= 4) add(shape, rows, 0);
  }
  for (int i = 0; i < kCollectives; ++i) {
    const auto operation = static_cast<Collective>(i);
    for (const int ranks : {2, 4}) {
      if (operation == Collective::send && ranks != 2) continue;
      for (std::int64_t bytes = 1024; bytes <= std::int64_t{1} << 24; bytes *= 4) {
        profile.collectives.push_back(
            {operation, ranks, 1, bytes,
             exactly(machine.seconds(operation, ranks, static_cast<double>(bytes))), true});
      }
    }
  }
  return profile;
}

}  // namespace hydraulis::testing
