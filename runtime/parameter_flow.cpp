#include "runtime/parameter_flow.h"

namespace hydraulis {

namespace {

/// A tied embedding that the head's stage keeps is the embedding's master copy.
int owner_layer(const Transfer& transfer, int layer) {
  return transfer.tensor == TensorKind::embedding ? kEmbeddingLayer : layer;
}

}  // namespace

ParameterFlow::ParameterFlow(const Backend& backend, OptimizerShard& shard,
                             const PhaseTransfers& transfers, Stream& stream,
                             StageParameters* weights, StageParameters* gradients)
    : backend_(backend),
      shard_(shard),
      transfers_(transfers),
      stream_(stream),
      weights_(weights),
      gradients_(gradients) {
  for (const auto& [layer, moved] : transfers_.reduce) left_.push_back(layer);
}

void ParameterFlow::start_gather() {
  shard_.round_parameters(stream_);
  gather(
      [this](int layer, const Transfer& transfer) {
        return shard_
            .part(shard_.stage_parameters(), owner_layer(transfer, layer), transfer.tensor,
                  transfer.begin, transfer.end)
            .data;
      },
      false);
}

void ParameterFlow::start_switch(const StageParameters* before) {
  gather(
      [before](int layer, const Transfer& transfer) {
        // A tied embedding lies with the head only where the embedding's own stage is another.
        const bool there = before->holds(layer, transfer.tensor);
        return before->address(there ? layer : owner_layer(transfer, layer), transfer.tensor,
                               transfer.begin);
      },
      before == weights_);
}

void ParameterFlow::gather(const Source& source, bool in_place) {
  const std::int64_t element = size_of(backend_.type);
  const auto bytes = [&](const Transfer& transfer) {
    return (transfer.end - transfer.begin) * element;
  };
  // Copies within this rank first: on one stream with the messages they would wait for them.
  for (const auto& [layer, transfers] : transfers_.gather) {
    for (const Transfer& take : transfers.takes) {
      if (take.source != take.destination || in_place) continue;
      backend_.device->copy(weights_->address(layer, take.tensor, take.begin), source(layer, take),
                            bytes(take), stream_);
    }
  }
  for (const auto& [layer, transfers] : transfers_.gather) {
    std::vector<Message> messages;
    for (const Transfer& give : transfers.gives) {
      if (give.destination == give.source) continue;
      messages.push_back({give.destination, true, source(layer, give), bytes(give)});
    }
    for (const Transfer& take : transfers.takes) {
      if (take.source == take.destination) continue;
      messages.push_back(
          {take.source, false, weights_->address(layer, take.tensor, take.begin), bytes(take)});
    }
    if (!messages.empty()) backend_.world->exchange(messages, Channel::parameters, stream_);
    gathers_[layer] = backend_.device->record(stream_);
  }
}

void ParameterFlow::wait_for_layer(int layer, Stream& stream) {
  const auto found = gathers_.find(layer);
  if (found != gathers_.end()) backend_.device->wait(stream, found->second);
}

void ParameterFlow::wait_for_all(Stream& stream) {
  for (const auto& [layer, event] : gathers_) backend_.device->wait(stream, event);
}

double ParameterFlow::gathered_seconds(int layer) const { return gathers_.at(layer)->seconds(); }

void ParameterFlow::start_reduction(int layer) {
  const std::int64_t element = size_of(shard_.gradients().type);
  const LayerTransfers& transfers = transfers_.reduce.at(layer);
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
  if (!messages.empty()) backend_.world->exchange(messages, Channel::reduction, stream_);
  reduction.event = backend_.device->record(stream_);
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
  backend_.device->wait(stream_, backend_.device->record(compute));
  start_reductions_from(layer);
  add_finished(compute);
}

void ParameterFlow::start_reductions_from(int layer) {
  while (!left_.empty() && left_.back() >= layer) {
    const int next = left_.back();
    left_.pop_back();
    start_reduction(next);
  }
}

void ParameterFlow::finish_reduction(Stream& compute) {
  backend_.device->wait(stream_, backend_.device->record(compute));
  start_reductions_from(kEmbeddingLayer);
  while (first_running_ < running_.size()) {
    backend_.device->wait(compute, running_[first_running_].event);
    add_up(running_[first_running_++], compute);
  }
}

}  // namespace hydraulis
