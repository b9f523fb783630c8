#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/scheme.h"

namespace hydraulis {

/// What `hydraulis validate` fits for a device type: a handful of positive numbers.
enum class PublicParameter : std::uint8_t {
  gemm,            ///< matrix products: time over FLOPs at the data sheet's peak
  operands,        ///< and over their operands' bytes at the memory's bandwidth: small shapes
  attention,       ///< fused attention: time over causal FLOPs at peak
  element_wise,    ///< time over bytes at the memory's bandwidth
  launch,          ///< seconds of launching one layer's forward; a backward launches twice that
  collective,      ///< in a node: time over that of the all-reduce curve
  inter_node,      ///< across nodes: time over bytes at the node's bandwidth
  micro_batch,     ///< seconds a micro-batch and stage, beside its layers
  transfer,        ///< between stages: seconds a byte
  odd_vocabulary,  ///< product with a vocabulary that is no multiple of 8: times slower
  optimizer,       ///< time over the bytes of its step at the memory's bandwidth
  iteration,       ///< seconds an iteration
  layer_copies,    ///< memory: bytes a parameter of one layer (gradients not yet added up)
  logits,          ///< memory: bytes a logit
};
inline constexpr int kPublicParameters = static_cast<int>(PublicParameter::logits) + 1;

struct PublicParameterInfo {
  const char* key;
  const char* unit;
  const char* meaning;
};
const PublicParameterInfo& describe(PublicParameter parameter);

/// Values by PublicParameter.
using PublicValues = std::array<double, kPublicParameters>;

/// Time of an all-reduce within one node by size, measured over all its devices.
struct AllReduceCurve {
  struct Point {
    double bytes = 0;
    double seconds = 0;
  };
  /// Ascending in both. Between points interpolated on logarithmic axes, flat before the first,
  /// at the last one's rate beyond it.
  std::vector<Point> points;
  int devices = 8;

  /// Seconds among `group` devices: the time at the size that puts as many bytes on the wire of
  /// each device as among all of them (2·(n − 1)/n of the size); 0 for a group of one.
  double seconds(double bytes, int group) const;
};

/// A device type with the software its measurements were taken with.
struct PublicDevice {
  std::string name;       ///< of `--device`
  std::string origin;     ///< of the hardware's figures
  std::string fitted_to;  ///< rows that the shipped values come from
  double peak_flops = 0;
  double memory_bandwidth_bytes_per_second = 0;
  int devices_per_node = 8;
  double node_bandwidth_bytes_per_second = 0;  ///< of all its network cards, one direction
  AllReduceCurve all_reduce;
  bool fused_attention = false;    ///< else scores are written and masked entries computed
  bool sequence_parallel = false;  ///< else norms are repeated on every tensor-parallel device
  bool sharded_optimizer = false;  ///< over dp·cp: reduce-scatter fp32, gather bf16
  Recompute recompute = Recompute::none;
  int vocab = 0;                        ///< padded to a multiple of 128·tp when tp > 1
  double gradient_bytes = 2;            ///< of an element when it is reduced
  PublicValues expected{};              ///< before any fit, from data sheets; where fits start
  PublicValues fitted{};                ///< shipped: from the rows that `fitted_to` names
  std::vector<PublicParameter> times;   ///< those that iteration times tell
  std::vector<PublicParameter> memory;  ///< those that allocated memory tells
};

/// "a100-node", "a100-cluster", "b200". Throws InputError for other names.
const PublicDevice& public_device(const std::string& name);
std::vector<std::string> public_device_names();

}  // namespace hydraulis
