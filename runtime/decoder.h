#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "costmodel/model_spec.h"
#include "planner/program/reshard.h"

namespace hydraulis {

/// How rotary frequencies are stretched for contexts longer than those first trained on.
struct RotaryScaling {
  enum class Kind : std::uint8_t { none, linear, llama3 };
  Kind kind = Kind::none;
  double factor = 1;
  double low_frequency_factor = 1;  ///< llama3 only, as are the next two
  double high_frequency_factor = 4;
  double original_context = 8192;  ///< tokens
  bool operator==(const RotaryScaling&) const = default;
};

/// A decoder that can be trained: its shape, and the numbers that planning does not need.
struct DecoderSpec {
  ModelSpec shape;
  double norm_epsilon = 1e-5;
  double rotary_theta = 10000;
  RotaryScaling rotary_scaling;
  double initializer_range = 0.02;    ///< standard deviation of the first weights
  std::int64_t max_positions = 2048;  ///< longest sequence the model is made for, tokens
};

/// Rotation of pair i per position, radians: theta^(−2i/head_dim), scaled; head_dim/2 numbers.
std::vector<double> inverse_frequencies(const DecoderSpec& decoder);

/// A parameter tensor as users see it (Hugging Face name and shape). `transposed`: its elements are
/// numbered column by column in layouts (see ParameterTensor), row by row in files.
struct LogicalTensor {
  int layer = 0;  ///< kEmbeddingLayer, a decoder layer, or the number of layers for the head
  TensorKind kind = TensorKind::embedding;
  std::string name;                 ///< "model.layers.3.mlp.down_proj.weight"
  std::vector<std::int64_t> shape;  ///< one or two dimensions
  bool transposed = false;
  std::int64_t elements() const;
};

/// Every parameter tensor of the model once, embedding first, head last; a tied head has no matrix.
std::vector<LogicalTensor> logical_tensors(const ModelSpec& model);

}  // namespace hydraulis
