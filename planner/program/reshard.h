#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "costmodel/cost_model.h"
#include "planner/program/program.h"

namespace hydraulis {

/// The model's parameter tensors.
enum class TensorKind : std::uint8_t {
  embedding,
  attention_norm,
  query,
  key,
  value,
  query_bias,
  key_bias,
  value_bias,
  query_norm,
  key_norm,
  attention_output,
  mlp_norm,
  gate,
  up,
  down,
  final_norm,
  head,
};
inline constexpr int kTensorKinds = 17;
const char* to_string(TensorKind kind);

/// A parameter tensor seen as `units` equal pieces along the dimension that tensor parallelism
/// splits (attention heads, feed-forward channels, vocabulary rows). Elements are numbered with
/// that dimension slowest, so a tensor-parallel shard is one contiguous range of elements: for
/// attention_output and down, whose columns are split, this is the transposed matrix.
struct ParameterTensor {
  TensorKind kind = TensorKind::embedding;
  std::int64_t units = 0;
  std::int64_t unit_elements = 0;
  bool split = false;       ///< false: every tensor-parallel rank holds all of it
  bool vocabulary = false;  ///< shards are equal after padding the units to a multiple of tp

  std::int64_t elements() const { return units * unit_elements; }
};

/// Tensors of a layer: kEmbeddingLayer, a decoder layer, or `model.layers` for the head (last norm
/// and, unless tied to the embedding, the output matrix).
std::vector<ParameterTensor> layer_tensors(const ModelSpec& model, int layer);

/// Elements [begin, end) that a tensor-parallel rank computes with. With fewer units than ranks
/// (grouped-query heads) neighbouring ranks hold the same unit. Padding rows are nobody's.
std::pair<std::int64_t, std::int64_t> tensor_shard(const ParameterTensor& tensor, int tp, int rank);

/// A contiguous range of one tensor of a layer on one device.
struct Holding {
  int device = 0;
  TensorKind tensor = TensorKind::embedding;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
/// Who holds what of one layer.
using Layout = std::vector<Holding>;

/// Fixed layout of optimizer states and master parameters: the layer lives on its optimizer stage,
/// is split over tp (tensors that are replicated in compute are cut into equal parts, so every
/// element has one owner), and each rank's shards, laid end to end, are cut into dp equal ranges
/// (ZeRO-1). Rank (p, d, t) is device (p·dp + d)·tp + t.
Layout optimizer_layout(const ModelSpec& model, const OptimizerLayout& optimizer, int layer);

/// What the devices of a stage compute a layer with: split over tp, repeated over cp.
/// A tied head on a stage without the embedding holds the embedding as well.
Layout stage_layout(const ModelSpec& model, const Stage& stage, int tp, int layer);

/// Stage of the optimizer layout that owns a layer.
int optimizer_stage(const ModelSpec& model, const OptimizerLayout& optimizer, int layer);

/// Elements [begin, end) of a tensor moved from one device to another, or kept where they are
/// (source equal to destination, 0 bytes).
struct Transfer {
  int source = 0;
  int destination = 0;
  TensorKind tensor = TensorKind::embedding;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t bytes = 0;
};

/// A source layout made ready for many destinations.
class TransferPlanner {
 public:
  TransferPlanner(const Layout& from, int devices_per_node);
  /// Transfers that give every holding of `to` each of its elements once, in the order of `to`.
  /// Where several devices hold an element: its own copy first, then a device in the same node,
  /// then any; among equals the one that sends least so far, then the lowest number.
  /// Throws std::logic_error when nobody holds an element.
  std::vector<Transfer> plan(const Layout& to, int bytes_per_element) const;
  /// Every element has one holder, so where it comes from does not depend on who asks.
  bool single_holders() const { return single_holders_; }

 private:
  struct Segment {
    std::int64_t begin;
    std::int64_t end;
    std::vector<int> devices;  ///< ascending
  };
  int choose(const std::vector<int>& devices, int destination,
             const std::map<int, std::int64_t>& sent) const;
  int devices_per_node_;
  std::vector<std::vector<Segment>> segments_;  ///< by tensor kind, ascending
  bool single_holders_ = true;
};

/// Two layouts turned into transfers.
std::vector<Transfer> plan_transfers(const Layout& from, const Layout& to, int devices_per_node,
                                     int bytes_per_element);

/// Bytes of a parameter on its way out and of a gradient on its way back: both bf16.
inline constexpr int kParameterBytes = 2;
inline constexpr int kGradientBytes = 2;

/// What the busiest device of a stage receives: the most inter-node bytes, then intra-node bytes,
/// then messages (all tensors of one sender travel in one message).
struct ReshardSummary {
  std::int64_t intra_node_bytes = 0;
  std::int64_t inter_node_bytes = 0;
  int messages = 0;
  auto operator<=>(const ReshardSummary&) const = default;
};
ReshardSummary summarise(const std::vector<Transfer>& transfers, int devices_per_node);

/// Parameter gather of every layer of every stage. Gradient reduction is the same list with source
/// and destination exchanged (each device of each pipeline sends its contribution to the owner).
/// Decoder layers of one optimizer stage are alike, so each kind is worked out once a stage.
class GatherPlanner {
 public:
  GatherPlanner(const ModelSpec& model, const OptimizerLayout& optimizer, int devices_per_node);
  std::vector<Transfer> transfers(const Stage& stage, int tp, int layer);
  /// Summaries of the stage's layers: embedding if it has it, decoder layers, head if it has it.
  std::vector<std::pair<int, ReshardSummary>> stage_summaries(const Stage& stage, int tp);

 private:
  ModelSpec model_;
  OptimizerLayout optimizer_;
  int devices_per_node_;
  std::vector<int> stage_of_layer_;          ///< of decoder layers
  std::map<int, TransferPlanner> planners_;  ///< by representative layer
  /// Who owns what one tensor-parallel rank computes a layer with, by device.
  struct Owners {
    std::vector<std::pair<int, std::int64_t>> bytes;
    std::int64_t all = 0;
  };
  std::map<std::tuple<int, int, int, bool>, Owners> owners_;  ///< by layer, tp, rank, see owners()
  int representative(int layer) const;
  const TransferPlanner& planner(int key);
  const Owners& owners(const Stage& stage, int tp, int key, std::size_t member);
  ReshardSummary summary(const Stage& stage, int tp, int layer);
};

}  // namespace hydraulis
