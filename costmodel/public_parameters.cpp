#include "costmodel/public_parameters.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.h"

namespace hydraulis {
namespace {

using enum PublicParameter;

constexpr PublicParameterInfo kInfos[kPublicParameters] = {
    {"gemm", "1", "matrix products: time over FLOPs at peak (1 / efficiency of large ones)"},
    {"operands", "1", "matrix products: more time, over their operands' bytes at memory bandwidth"},
    {"attention", "1", "fused attention: time over causal FLOPs at peak"},
    {"element_wise", "1", "norms, activations, scores: time over ideal bytes at memory bandwidth"},
    {"launch", "s", "launching one layer's forward; a backward launches twice as much"},
    {"collective", "1", "collectives in a node: time over that of the all-reduce curve"},
    {"inter_node", "1", "collectives across nodes: time over bytes at the node's bandwidth"},
    {"micro_batch", "s", "a micro-batch on a stage, beside its layers"},
    {"transfer", "s/byte", "activations and gradients between stages"},
    {"odd_vocabulary", "1", "product with a vocabulary that is no multiple of 8: times slower"},
    {"optimizer", "1", "step: time over the bytes of its states at memory bandwidth"},
    {"iteration", "s", "an iteration, beside everything else"},
    {"layer_copies", "bytes", "memory: a parameter of one layer (gradients not yet added up)"},
    {"logits", "bytes", "memory: a logit"},
};

/// Latency and bandwidth as a curve: what is small takes `floor`.
AllReduceCurve latency_and_bandwidth(double floor, double latency, double bytes_per_second) {
  AllReduceCurve curve;
  const double factor = 2.0 * (curve.devices - 1) / curve.devices / bytes_per_second;
  double last = 0;
  for (double bytes = 1 << 20; bytes <= 1 << 30; bytes *= 2) {
    last = std::max(last * (1 + 1e-9), std::max(floor, latency + bytes * factor));
    curve.points.push_back({bytes, last});
  }
  return curve;
}

void set(PublicValues& values, PublicParameter parameter, double value) {
  values[static_cast<std::size_t>(parameter)] = value;
}

PublicValues expected_values() {
  PublicValues values;
  values.fill(1);
  set(values, gemm, 1.4);
  set(values, attention, 2.5);
  set(values, element_wise, 1.5);
  set(values, launch, 0.75e-3);
  set(values, micro_batch, 1e-3);
  set(values, transfer, 3e-11);
  set(values, odd_vocabulary, 4);
  set(values, optimizer, 1.5);
  set(values, iteration, 5e-3);
  set(values, layer_copies, 3);
  set(values, logits, 5);
  return values;
}

PublicDevice a100() {
  PublicDevice device;
  device.peak_flops = 312e12;
  device.memory_bandwidth_bytes_per_second = 2039e9;
  device.node_bandwidth_bytes_per_second = 100e9;
  // α–β form of an all-reduce over 8 A100 of one node.
  device.all_reduce = latency_and_bandwidth(93e-6, 85e-6, 232e9);
  device.recompute = Recompute::full;
  device.expected = expected_values();
  return device;
}

PublicDevice a100_node() {
  PublicDevice device = a100();
  device.name = "a100-node";
  device.origin = "one node of A100";
  device.fitted_to = "720 single-node rows published with vTrain";
  device.vocab = 50257;
  device.times = {gemm,        operands, element_wise,   launch,    collective,
                  micro_batch, transfer, odd_vocabulary, optimizer, iteration};
  device.fitted = device.expected;
  set(device.fitted, gemm, 0.7651);
  set(device.fitted, operands, 2.643);
  set(device.fitted, element_wise, 1.303);
  set(device.fitted, launch, 0.7162e-3);
  set(device.fitted, collective, 1.044);
  set(device.fitted, micro_batch, 0.7348e-3);
  set(device.fitted, transfer, 2.864e-11);
  set(device.fitted, odd_vocabulary, 4.33);
  set(device.fitted, optimizer, 0.6024);
  set(device.fitted, iteration, 2.955e-3);
  return device;
}

PublicDevice a100_cluster() {
  PublicDevice device = a100();
  device.name = "a100-cluster";
  device.origin = "nodes of 8 A100 with 800 Gb/s each";
  device.fitted_to = "55 multi-node rows published with vTrain";
  device.vocab = 51200;
  device.gradient_bytes = 4;
  device.times = {gemm,       operands,    element_wise, launch,   collective,
                  inter_node, micro_batch, transfer,     optimizer};
  device.fitted = device.expected;
  set(device.fitted, gemm, 1.207);
  set(device.fitted, operands, 1.279);
  set(device.fitted, element_wise, 1.451);
  set(device.fitted, launch, 1.697e-3);
  set(device.fitted, collective, 0.8469);
  set(device.fitted, inter_node, 0.7173);
  set(device.fitted, micro_batch, 1.044e-3);
  set(device.fitted, transfer, 2.03e-11);
  set(device.fitted, optimizer, 1.551);
  return device;
}

PublicDevice b200() {
  PublicDevice device;
  device.name = "b200";
  device.origin = "8 B200";
  device.fitted_to = "16 rows published with SimuMax";
  device.peak_flops = 2250e12;
  device.memory_bandwidth_bytes_per_second = 8000e9;
  device.node_bandwidth_bytes_per_second = 400e9;
  device.all_reduce = latency_and_bandwidth(20e-6, 20e-6, 700e9);  // of the data sheet's 900
  device.fused_attention = true;
  device.sequence_parallel = true;
  device.sharded_optimizer = true;
  device.vocab = 128256;
  device.gradient_bytes = 4;
  device.expected = expected_values();
  device.times = {gemm, attention, element_wise, collective, iteration};
  device.memory = {layer_copies, logits};
  device.fitted = device.expected;
  set(device.fitted, gemm, 2.033);
  set(device.fitted, attention, 3.04);
  set(device.fitted, element_wise, 1.433);
  set(device.fitted, collective, 1.717);
  set(device.fitted, iteration, 5.079e-3);
  set(device.fitted, layer_copies, 2.916);
  set(device.fitted, logits, 5.52);
  return device;
}

const std::vector<PublicDevice>& devices() {
  static const std::vector<PublicDevice> all{a100_node(), a100_cluster(), b200()};
  return all;
}

}  // namespace

const PublicParameterInfo& describe(PublicParameter parameter) {
  return kInfos[static_cast<std::size_t>(parameter)];
}

double AllReduceCurve::seconds(double bytes, int group) const {
  if (group <= 1 || bytes <= 0) return 0;
  const double wire = (group - 1.0) / group;
  const double size = bytes * wire * devices / (devices - 1.0);
  if (size <= points.front().bytes) return points.front().seconds;
  if (size >= points.back().bytes) return size / points.back().bytes * points.back().seconds;
  const auto above = std::upper_bound(points.begin(), points.end(), size,
                                      [](double s, const Point& p) { return s < p.bytes; });
  const Point& high = *above;
  const Point& low = *std::prev(above);
  const double share = std::log(size / low.bytes) / std::log(high.bytes / low.bytes);
  return low.seconds * std::pow(high.seconds / low.seconds, share);
}

const PublicDevice& public_device(const std::string& name) {
  for (const PublicDevice& device : devices()) {
    if (device.name == name) return device;
  }
  std::string known;
  for (const std::string& each : public_device_names()) known += (known.empty() ? "" : ", ") + each;
  throw InputError("--device: '{}', expected one of {}", name, known);
}

std::vector<std::string> public_device_names() {
  std::vector<std::string> names;
  for (const PublicDevice& device : devices()) names.push_back(device.name);
  return names;
}

}  // namespace hydraulis
