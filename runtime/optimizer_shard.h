#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "costmodel/cost_model.h"
#include "costmodel/host_states.h"
#include "planner/program/reshard.h"
#include "runtime/decoder.h"
#include "runtime/host_optimizer.h"
#include "runtime/tensor.h"

namespace hydraulis {

enum class OptimizerKind : std::uint8_t { adamw, lamb };

/// A range of a tensor whose master copy this rank owns.
struct OwnedRange {
  int layer = 0;
  TensorKind kind = TensorKind::embedding;
  std::int64_t begin = 0;  ///< elements of the whole tensor, numbered as in ParameterTensor
  std::int64_t end = 0;
  std::int64_t offset = 0;  ///< of `begin` in the shard
};

/// One rank's share of the fixed layout of master parameters, gradients and optimizer moments, all
/// of the backend's wide type. Masters and moments may live in host memory; gradients never do.
/// The layout is the same whatever strategy an iteration uses.
class OptimizerShard {
 public:
  /// States in host memory are updated in buckets of `host_bucket` elements.
  OptimizerShard(const Backend& backend, const DecoderSpec& decoder, const OptimizerLayout& layout,
                 OptimizerStates states = OptimizerStates::device,
                 std::int64_t host_bucket = kHostBucketElements);

  const std::vector<OwnedRange>& ranges() const { return ranges_; }
  std::int64_t elements() const { return elements_; }
  const OptimizerLayout& layout() const { return layout_; }
  Matrix parameters() const { return host_ ? host_->parameters() : parameters_.matrix; }
  Matrix gradients() const { return gradients_.matrix; }
  Matrix first_moments() const { return host_ ? host_->first_moments() : first_.matrix; }
  Matrix second_moments() const { return host_ ? host_->second_moments() : second_.matrix; }
  /// Whether a matrix of these is in host memory.
  bool on_host(const ConstMatrix& of) const { return host_ != nullptr && host_->holds(of.data); }
  /// Parameters as stages compute with them: the masters themselves, or, where stages compute with
  /// a narrower type, what round_parameters() last made of them.
  Matrix stage_parameters() const {
    return rounded_.empty() ? parameters_.matrix : rounded_.matrix;
  }
  void round_parameters(Stream& stream);
  /// One-row view of elements [begin, end) of a tensor, which must lie in one owned range.
  Matrix part(Matrix of, int layer, TensorKind kind, std::int64_t begin, std::int64_t end) const;

  /// First weights: normal with the decoder's standard deviation, norms 1, biases 0; each element a
  /// function of the seed, its tensor and its place, so the same on any layout.
  void initialise(std::uint64_t seed);

  /// Norms and biases do not decay. `settings` is complete but for per-tensor decay; LAMB needs the
  /// norms of whole tensors and so talks to the world.
  void step(OptimizerKind kind, const OptimizerStep& settings, Stream& stream);

  /// Reads and writes a shard's numbers on the host in double precision.
  std::vector<double> to_host(Matrix of, const OwnedRange& range) const;
  void from_host(Matrix to, const OwnedRange& range, const std::vector<double>& values) const;

 private:
  Matrix part(Matrix of, const OwnedRange& range) const;
  std::vector<OptimizerStretch> stretches() const;
  void lamb(const OptimizerStep& settings, Stream& stream);
  /// By stretch, from squared norms of what this rank has of it.
  std::vector<double> lamb_scales(double learning_rate, std::span<const double> of_parameters,
                                  std::span<const double> of_updates) const;
  Backend backend_;
  DecoderSpec decoder_;
  OptimizerLayout layout_;
  std::vector<OwnedRange> ranges_;
  std::int64_t elements_ = 0;
  ComputeStream stream_;
  std::unique_ptr<HostOptimizer> host_;  ///< has parameters and moments, if there is one
  Tensor parameters_;
  Tensor gradients_;
  Tensor first_;
  Tensor second_;
  Tensor rounded_;  ///< parameters in the stages' type; empty where that is the masters'
};

bool decays(TensorKind kind);

}  // namespace hydraulis
