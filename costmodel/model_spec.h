#pragma once

#include <cstdint>
#include <string>

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

/// A preset name ("llama-32b", …) or the path of a Hugging Face config.json. Throws InputError;
/// families it cannot represent are refused by name.
ModelSpec load_model(const std::string& preset_or_path);

}  // namespace hydraulis
