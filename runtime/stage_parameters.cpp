#include "runtime/stage_parameters.h"

#include <stdexcept>
#include <tuple>

namespace hydraulis {

const TensorSlot* LayerSlots::find(TensorKind kind) const {
  for (const TensorSlot& slot : slots) {
    if (slot.kind == kind) return &slot;
  }
  return nullptr;
}

LayerSlots layer_slots(const ModelSpec& model, int layer, int tp, int rank, bool tied_copy) {
  LayerSlots result;
  const auto add = [&](const ParameterTensor& tensor) {
    TensorSlot slot;
    slot.kind = tensor.kind;
    std::tie(slot.begin, slot.end) = tensor_shard(tensor, tp, rank);
    slot.offset = result.elements;
    std::int64_t held = slot.end - slot.begin;
    if (tensor.vocabulary) held = (tensor.units + tp - 1) / tp * tensor.unit_elements;
    result.elements += held;
    result.slots.push_back(slot);
  };
  // layer_tensors lists query, key, value and gate, up next to one another.
  for (const ParameterTensor& tensor : layer_tensors(model, layer)) add(tensor);
  if (tied_copy && layer == model.layers) {
    for (const ParameterTensor& tensor : layer_tensors(model, kEmbeddingLayer)) add(tensor);
  }
  return result;
}

StageParameters::StageParameters(const Backend& backend, DataType type, const ModelSpec& model,
                                 const Stage& stage, int tp, int tensor_rank)
    : backend_(&backend), type_(type) {
  if (stage.has_embedding) layers_.push_back(kEmbeddingLayer);
  for (int layer = stage.layer_begin; layer < stage.layer_end; ++layer) layers_.push_back(layer);
  if (stage.has_head) layers_.push_back(model.layers);
  const bool tied_copy = model.tied_embeddings && !stage.has_embedding;
  for (const int layer : layers_) {
    LayerSlots slots = layer_slots(model, layer, tp, tensor_rank, tied_copy);
    const std::int64_t bytes = slots.elements * size_of(type);
    by_layer_.emplace(layer, Layer{std::move(slots), DeviceBuffer(*backend.device, bytes)});
  }
}

const StageParameters::Layer& StageParameters::at(int layer) const {
  const auto found = by_layer_.find(layer);
  if (found == by_layer_.end()) throw std::logic_error("this stage does not hold that layer");
  return found->second;
}

bool StageParameters::holds(int layer, TensorKind kind) const {
  const auto found = by_layer_.find(layer);
  return found != by_layer_.end() && found->second.slots.find(kind) != nullptr;
}

void* StageParameters::address(int layer, TensorKind kind, std::int64_t begin) const {
  const Layer& held = at(layer);
  const TensorSlot* slot = held.slots.find(kind);
  if (slot == nullptr || begin < slot->begin || begin > slot->end) {
    throw std::logic_error("this stage does not hold that part of a tensor");
  }
  return static_cast<char*>(held.buffer.data()) +
         (slot->offset + begin - slot->begin) * size_of(type_);
}

Matrix StageParameters::matrix(int layer, TensorKind first, std::int64_t rows,
                               std::int64_t columns) const {
  const Layer& held = at(layer);
  const TensorSlot* slot = held.slots.find(first);
  if (slot == nullptr || slot->offset + rows * columns > held.slots.elements) {
    throw std::logic_error("this stage does not hold that matrix");
  }
  return {static_cast<char*>(held.buffer.data()) + slot->offset * size_of(type_), type_, rows,
          columns, columns};
}

void StageParameters::zero(Stream& stream) {
  for (auto& [layer, held] : by_layer_) {
    backend_->device->zero(held.buffer.data(), held.buffer.bytes(), stream);
  }
}

std::int64_t StageParameters::elements() const {
  std::int64_t count = 0;
  for (const auto& [layer, held] : by_layer_) count += held.slots.elements;
  return count;
}

}  // namespace hydraulis
