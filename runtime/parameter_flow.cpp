#include "runtime/parameter_flow.h"

namespace hydraulis {

RankTransfers rank_transfers(const ModelSpec& model, const Program& program, int rank) {
  GatherPlanner planner(model, program.optimizer, program.devices_per_node);
  RankTransfers result;
  for (const Stage& stage : program.stages) {
    const int tp = program.pipelines[stage.pipeline].scheme.tp;
    std::vector<int> layers;
    if (stage.has_embedding) layers.push_back(kEmbeddingLayer);
    for (int layer = stage.layer_begin; layer < stage.layer_end; ++layer) layers.push_back(layer);
    if (stage.has_head) layers.push_back(model.layers);
    for (const int layer : layers) {
      for (const Transfer& transfer : planner.transfers(stage, tp, layer)) {
        if (transfer.source == rank) result[layer].gives.push_back(transfer);
        if (transfer.destination == rank) result[layer].takes.push_back(transfer);
      }
    }
  }
  return result;
}

namespace {

/// A tied embedding that the head's stage keeps is the embedding's master copy.
int owner_layer(const Transfer& transfer, int layer) {
  return transfer.tensor == TensorKind::embedding ? kEmbeddingLayer : layer;
}

}  // namespace

ParameterFlow::ParameterFlow(const Backend& backend, OptimizerShard& shard,
                             const RankTransfers& transfers, StageParameters* weights,
                             StageParameters* gradients)
    : backend_(backend),
      shard_(shard),
      transfers_(transfers),
      weights_(weights),
      gradients_(gradients),
      stream_(backend.device->make_stream()) {}

void ParameterFlow::start_gather() {
  const std::int64_t element = size_of(backend_.type);
  gathers_.clear();
  shard_.round_parameters(*stream_);
  // Copies within this rank first: on one stream with the messages they would wait for them.
  for (const auto& [layer, transfers] : transfers_) {
    for (const Transfer& take : transfers.takes) {
      if (take.source != take.destination) continue;
      const Matrix from = shard_.part(shard_.stage_parameters(), owner_layer(take, layer),
                                      take.tensor, take.begin, take.end);
      backend_.device->copy(weights_->address(layer, take.tensor, take.begin), from.data,
                            from.elements() * element, *stream_);
    }
  }
  for (const auto& [layer, transfers] : transfers_) {
    std::vector<Message> messages;
    for (const Transfer& give : transfers.gives) {
      if (give.destination == give.source) continue;
      const Matrix from = shard_.part(shard_.stage_parameters(), owner_layer(give, layer),
                                      give.tensor, give.begin, give.end);
      messages.push_back({give.destination, true, from.data, from.elements() * element});
    }
    for (const Transfer& take : transfers.takes) {
      if (take.source == take.destination) continue;
      messages.push_back({take.source, false, weights_->address(layer, take.tensor, take.begin),
                          (take.end - take.begin) * element});
    }
    if (!messages.empty()) backend_.world->exchange(messages, Channel::parameters, *stream_);
    gathers_[layer] = backend_.device->record(*stream_);
  }
  left_.clear();
  for (const auto& [layer, transfers] : transfers_) left_.push_back(layer);
  running_.clear();
  first_running_ = 0;
}

void ParameterFlow::wait_for_layer(int layer, Stream& stream) {
  const auto found = gathers_.find(layer);
  if (found != gathers_.end()) backend_.device->wait(stream, found->second);
}

bool ParameterFlow::gathered(int layer) const {
  const auto found = gathers_.find(layer);
  return found == gathers_.end() || found->second->done();
}

double ParameterFlow::gathered_seconds(int layer) const { return gathers_.at(layer)->seconds(); }

void ParameterFlow::start_reduction(int layer) {
  const std::int64_t element = size_of(shard_.gradients().type);
  const LayerTransfers& transfers = transfers_.at(layer);
  Reduction reduction;
  reduction.layer = layer;
  std::vector<Message> messages;
  for (const Transfer& take : transfers.takes) {
    if (take.source == take.destination) continue;
    messages.push_back({take.source, true, gradients_->address(layer, take.tensor, take.begin),
                        (take.end - take.begin) * element});
  }
  for (const Transfer& give : transfers.gives) {
    Incoming incoming{&give, {}};
    if (give.source != give.destination) {
      incoming.buffer = DeviceBuffer(*backend_.device, (give.end - give.begin) * element);
      messages.push_back(
          {give.destination, false, incoming.buffer.data(), incoming.buffer.bytes()});
    }
    reduction.incoming.push_back(std::move(incoming));
  }
  if (!messages.empty()) backend_.world->exchange(messages, Channel::reduction, *stream_);
  reduction.event = backend_.device->record(*stream_);
  running_.push_back(std::move(reduction));
}

void ParameterFlow::add_up(Reduction& reduction, Stream& compute) {
  for (Incoming& incoming : reduction.incoming) {
    const Transfer& give = *incoming.transfer;
    const Matrix sum = shard_.part(shard_.gradients(), owner_layer(give, reduction.layer),
                                   give.tensor, give.begin, give.end);
    const bool own = give.source == give.destination;
    const ConstMatrix part(own ? gradients_->address(reduction.layer, give.tensor, give.begin)
                               : incoming.buffer.data(),
                           sum.type, 1, sum.elements(), sum.elements());
    backend_.compute->add(sum, part, sum, compute);
  }
  reduction.incoming.clear();
}

void ParameterFlow::add_finished(Stream& compute) {
  while (first_running_ < running_.size() && running_[first_running_].event->done()) {
    add_up(running_[first_running_++], compute);
  }
}

void ParameterFlow::layer_complete(int layer, Stream& compute) {
  backend_.device->wait(*stream_, backend_.device->record(compute));
  while (!left_.empty() && left_.back() >= layer) {
    const int next = left_.back();
    left_.pop_back();
    start_reduction(next);
  }
  add_finished(compute);
}

void ParameterFlow::finish_reduction(Stream& compute) {
  backend_.device->wait(*stream_, backend_.device->record(compute));
  while (!left_.empty()) {
    const int next = left_.back();
    left_.pop_back();
    start_reduction(next);
  }
  while (first_running_ < running_.size()) {
    backend_.device->wait(compute, running_[first_running_].event);
    add_up(running_[first_running_++], compute);
  }
  running_.clear();
  first_running_ = 0;
}

}  // namespace hydraulis
