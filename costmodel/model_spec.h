#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"

namespace hydraulis {

/// A dense LLaMA-style decoder.
struct ModelSpec {
  std::string name;
  int layers = 0;
  int hidden = 0;
  int ffn_hidden = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocab = 0;
  bool tied_embeddings = false;
  bool qkv_bias = false;  ///< Qwen2-style
  bool qk_norm = false;   ///< Qwen3-style per-head norms
};

/// Exact number of parameters of the whole model (cases C05).
std::int64_t parameter_count(const ModelSpec& model);
/// Parameters of one decoder layer; of the embedding; of the head with the last norm.
std::int64_t layer_parameters(const ModelSpec& model);
std::int64_t embedding_parameters(const ModelSpec& model);
std::int64_t head_parameters(const ModelSpec& model);

/// Model FLOPs of training (forward and backward, 3× forward) on real tokens only: linear parts by
/// Σs, causal attention by Σs². Recomputation and padding never count (MFU, not HFU).
double training_flops(const ModelSpec& model, double sum_tokens, double sum_squares);

/// Elements of the weight matrices of one decoder layer that multiply a token (no norms, biases).
std::int64_t layer_matrix_elements(const ModelSpec& model);

/// A preset name ("llama-32b", …), the path of a Hugging Face config.json or "megatron:FILE"
/// (megatron_arguments.h). Throws InputError; families it cannot represent are refused by name.
ModelSpec load_model(const std::string& preset_or_path);

/// The model of a parsed Hugging Face config.json: llama, qwen2, qwen3, and mistral without a
/// sliding window; rotary scaling default, linear or llama3. `where` names the file in errors.
ModelSpec parse_model_config(const Json& json, const std::string& where);

/// Throws InputError naming the field when the sizes do not make a model (`where` says whose).
void check_model(const ModelSpec& model, const std::string& where);

}  // namespace hydraulis
