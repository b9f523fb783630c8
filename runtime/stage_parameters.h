#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "planner/program/program.h"
#include "planner/program/reshard.h"
#include "runtime/tensor.h"

namespace hydraulis {

/// A tensor of a layer as one device computes with it: a contiguous range of the tensor's elements.
struct TensorSlot {
  TensorKind kind = TensorKind::embedding;
  std::int64_t begin = 0;  ///< elements of the whole tensor
  std::int64_t end = 0;
  std::int64_t offset = 0;  ///< of element `begin` in the layer's buffer
};

/// One layer's tensors on one device, end to end in one buffer: query, key and value rows first and
/// adjacent, gate and up rows adjacent, so that each group is one matrix product. Rows that pad the
/// vocabulary follow their shard.
struct LayerSlots {
  std::vector<TensorSlot> slots;
  std::int64_t elements = 0;
  const TensorSlot* find(TensorKind kind) const;
};

/// Slots of a layer on tensor-parallel rank `rank` of `tp`; `tied_copy`: the head's stage keeps its
/// own copy of the embedding (stage_layout).
LayerSlots layer_slots(const ModelSpec& model, int layer, int tp, int rank, bool tied_copy);

/// Parameters (or gradients) of one stage on one device, by layer.
class StageParameters {
 public:
  StageParameters(const Backend& backend, DataType type, const ModelSpec& model, const Stage& stage,
                  int tp, int tensor_rank);
  DataType type() const { return type_; }
  /// Layers in ascending order: embedding −1, decoder layers, head.
  const std::vector<int>& layers() const { return layers_; }
  const LayerSlots& slots(int layer) const { return at(layer).slots; }
  /// First element of [begin, end) of a tensor; the range must be held.
  void* address(int layer, TensorKind kind, std::int64_t begin) const;
  /// The tensor (and the `rows` of its neighbours behind it) as a matrix with `columns` columns.
  Matrix matrix(int layer, TensorKind first, std::int64_t rows, std::int64_t columns) const;
  bool holds(int layer, TensorKind kind) const;
  void zero(Stream& stream);
  std::int64_t elements() const;

 private:
  struct Layer {
    LayerSlots slots;
    DeviceBuffer buffer;
  };
  const Layer& at(int layer) const;
  const Backend* backend_;
  DataType type_;
  std::vector<int> layers_;
  std::map<int, Layer> by_layer_;
};

}  // namespace hydraulis
