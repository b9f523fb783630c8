#include "runtime/optimizer_shard.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <stdexcept>
#include <utility>

#include "runtime/agreement.h"

namespace hydraulis {
namespace {

std::uint64_t mixed(std::uint64_t x) {  // splitmix64's output function
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

double uniform(std::uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53; }

/// Standard normal number number `index` of a stream (Box–Muller).
double normal(std::uint64_t stream, std::uint64_t index) {
  const double radius = std::sqrt(-2 * std::log(uniform(mixed(stream ^ mixed(2 * index)))));
  const double angle = 2 * std::numbers::pi * uniform(mixed(stream ^ mixed(2 * index + 1)));
  return radius * std::cos(angle);
}

bool is_norm(TensorKind kind) {
  return kind == TensorKind::attention_norm || kind == TensorKind::mlp_norm ||
         kind == TensorKind::final_norm || kind == TensorKind::query_norm ||
         kind == TensorKind::key_norm;
}

bool is_bias(TensorKind kind) {
  return kind == TensorKind::query_bias || kind == TensorKind::key_bias ||
         kind == TensorKind::value_bias;
}

}  // namespace

bool decays(TensorKind kind) { return !is_norm(kind) && !is_bias(kind); }

OptimizerShard::OptimizerShard(const Backend& backend, const DecoderSpec& decoder,
                               const OptimizerLayout& layout, OptimizerStates states,
                               std::int64_t host_bucket)
    : backend_(backend), decoder_(decoder), layout_(layout), stream_(backend) {
  const int rank = backend.world->rank();
  for (int layer = kEmbeddingLayer; layer <= decoder.shape.layers; ++layer) {
    for (const Holding& holding : optimizer_layout(decoder.shape, layout, layer)) {
      if (holding.device != rank) continue;
      ranges_.push_back({layer, holding.tensor, holding.begin, holding.end, elements_});
      elements_ += holding.end - holding.begin;
    }
  }
  std::vector<Tensor*> on_device = {&gradients_};
  if (states == OptimizerStates::host) {
    host_ = std::make_unique<HostOptimizer>(backend, elements_, host_bucket);
  } else {
    on_device.insert(on_device.end(), {&parameters_, &first_, &second_});
  }
  for (Tensor* tensor : on_device) {
    *tensor = Tensor(backend, wide_type(backend.type), 1, elements_);
    backend.device->zero(tensor->matrix.data, tensor->bytes(), *stream_);
  }
  if (wide_type(backend.type) != backend.type) rounded_ = Tensor(backend, 1, elements_);
  backend.device->synchronize(*stream_);
}

Matrix OptimizerShard::part(Matrix of, const OwnedRange& range) const {
  return of.column_range(range.offset, range.end - range.begin);
}

Matrix OptimizerShard::part(Matrix of, int layer, TensorKind kind, std::int64_t begin,
                            std::int64_t end) const {
  for (const OwnedRange& range : ranges_) {
    if (range.layer == layer && range.kind == kind && range.begin <= begin && end <= range.end) {
      return of.column_range(range.offset + begin - range.begin, end - begin);
    }
  }
  throw std::logic_error("this rank does not own that part of a tensor");
}

void OptimizerShard::round_parameters(Stream& stream) {
  if (host_) return host_->wait_for_parameters(rounded_.matrix, stream);
  if (!rounded_.empty()) backend_.compute->convert(parameters_.matrix, rounded_.matrix, stream);
}

void OptimizerShard::initialise(std::uint64_t seed) {
  for (const OwnedRange& range : ranges_) {
    std::vector<double> values(range.end - range.begin, is_norm(range.kind) ? 1.0 : 0.0);
    if (decays(range.kind)) {
      const std::uint64_t stream =
          mixed(mixed(seed) + static_cast<std::uint64_t>(range.layer + 1) * kTensorKinds +
                static_cast<std::uint64_t>(range.kind));
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = decoder_.initializer_range * normal(stream, range.begin + i);
      }
    }
    from_host(parameters(), range, values);
  }
}

std::vector<double> OptimizerShard::to_host(Matrix of, const OwnedRange& range) const {
  const Matrix view = part(of, range);
  if (on_host(view)) {
    const auto* from = view.as<float>();
    return {from, from + view.elements()};
  }
  std::vector<double> values(view.elements());
  if (view.type == DataType::f64) {
    backend_.device->copy_to_host(values.data(), view.data, view.elements() * 8, *stream_);
    backend_.device->synchronize(*stream_);
  } else {
    std::vector<float> singles(view.elements());
    backend_.device->copy_to_host(singles.data(), view.data, view.elements() * 4, *stream_);
    backend_.device->synchronize(*stream_);
    values.assign(singles.begin(), singles.end());
  }
  return values;
}

void OptimizerShard::from_host(Matrix to, const OwnedRange& range,
                               const std::vector<double>& values) const {
  const Matrix view = part(to, range);
  if (static_cast<std::int64_t>(values.size()) != view.elements()) {
    throw std::logic_error("values for an owned range of another size");
  }
  if (on_host(view)) {
    std::transform(values.begin(), values.end(), view.as<float>(),
                   [](double value) { return static_cast<float>(value); });
    return host_->parameters_changed();
  }
  if (view.type == DataType::f64) {
    backend_.device->copy_to_device(view.data, values.data(), view.elements() * 8, *stream_);
  } else {
    const std::vector<float> singles(values.begin(), values.end());
    backend_.device->copy_to_device(view.data, singles.data(), view.elements() * 4, *stream_);
  }
  backend_.device->synchronize(*stream_);
}

void OptimizerShard::step(OptimizerKind kind, const OptimizerStep& settings, Stream& stream) {
  if (kind == OptimizerKind::lamb) {
    lamb(settings, stream);
    return;
  }
  if (host_) {
    host_->adamw(settings, stretches(), gradients_.matrix, rounded_.matrix, stream);
    return;
  }
  backend_.compute->adamw(settings, stretches(), gradients_.matrix, parameters_.matrix,
                          first_.matrix, second_.matrix, stream);
}

std::vector<OptimizerStretch> OptimizerShard::stretches() const {
  std::vector<OptimizerStretch> all;
  for (const OwnedRange& range : ranges_) {
    all.push_back({range.offset, range.end - range.begin, decays(range.kind)});
  }
  return all;
}

std::vector<double> OptimizerShard::lamb_scales(double learning_rate,
                                                std::span<const double> of_parameters,
                                                std::span<const double> of_updates) const {
  // Squared norms of every tensor's parameter and update, summed over the ranks that own parts.
  const std::int64_t tensors = std::int64_t{decoder_.shape.layers + 2} * kTensorKinds;
  std::vector<double> squares(2 * tensors, 0.0);
  const auto index = [](const OwnedRange& range) {
    return 2 * (std::int64_t{range.layer + 1} * kTensorKinds + static_cast<int>(range.kind));
  };
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    squares[index(ranges_[i])] += of_parameters[i];
    squares[index(ranges_[i]) + 1] += of_updates[i];
  }
  sum_over_ranks(backend_, squares);
  std::vector<double> scales;
  for (const OwnedRange& range : ranges_) {
    const double parameter = std::sqrt(squares[index(range)]);
    const double direction = std::sqrt(squares[index(range) + 1]);
    const double ratio = parameter > 0 && direction > 0 ? parameter / direction : 1;
    scales.push_back(-learning_rate * ratio);
  }
  return scales;
}

void OptimizerShard::lamb(const OptimizerStep& settings, Stream& stream) {
  const std::vector<OptimizerStretch> all = stretches();
  const HostOptimizer::LambScales scales = [&](std::span<const double> of_parameters,
                                               std::span<const double> of_updates) {
    return lamb_scales(settings.learning_rate, of_parameters, of_updates);
  };
  if (host_) {
    host_->lamb(settings, all, gradients_.matrix, rounded_.matrix, stream, scales);
    return;
  }
  Tensor update(backend_, parameters_.matrix.type, 1, elements_);
  backend_.compute->lamb_direction(settings, all, gradients_.matrix, parameters_.matrix,
                                   first_.matrix, second_.matrix, update.matrix, stream);
  std::vector<double> of_parameters(all.size());
  std::vector<double> of_updates(all.size());
  backend_.compute->sum_squares(all, parameters_.matrix, of_parameters, stream);
  backend_.compute->sum_squares(all, update.matrix, of_updates, stream);
  backend_.compute->add_scaled(all, scales(of_parameters, of_updates), update.matrix,
                               parameters_.matrix, stream);
  backend_.device->synchronize(stream);
}

}  // namespace hydraulis
