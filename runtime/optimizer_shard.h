#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "costmodel/cost_model.h"
#include "planner/program/reshard.h"
#include "runtime/decoder.h"
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
/// of the backend's wide type.
/// The layout is the same whatever strategy an iteration uses.
class OptimizerShard {
 public:
  OptimizerShard(const Backend& backend, const DecoderSpec& decoder, const OptimizerLayout& layout);

  const std::vector<OwnedRange>& ranges() const { return ranges_; }
  std::int64_t elements() const { return elements_; }
  const OptimizerLayout& layout() const { return layout_; }
  Matrix parameters() const { return parameters_.matrix; }
  Matrix gradients() const { return gradients_.matrix; }
  Matrix first_moments() const { return first_.matrix; }
  Matrix second_moments() const { return second_.matrix; }
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
  Backend backend_;
  DecoderSpec decoder_;
  OptimizerLayout layout_;
  std::vector<OwnedRange> ranges_;
  std::int64_t elements_ = 0;
  ComputeStream stream_;
  Tensor parameters_;
  Tensor gradients_;
  Tensor first_;
  Tensor second_;
  Tensor rounded_;  ///< parameters in the stages' type; empty where that is the masters'
};

bool decays(TensorKind kind);

}  // namespace hydraulis
