#include "costmodel/presets/models.h"

namespace hydraulis::detail {
namespace {

/// The published runs' vocabulary.
constexpr int kPaperVocab = 30592;

/// The paper's models (multi-head attention, untied), then the published config.json of each.
const ModelSpec kModels[] = {
    // name, layers, hidden, ffn, heads, kv, head_dim, vocab, tied, qkv_bias, qk_norm
    {"llama-7b", 32, 4096, 11008, 32, 32, 128, kPaperVocab, false, false, false},
    {"llama-13b", 40, 5120, 13824, 40, 40, 128, kPaperVocab, false, false, false},
    {"llama-32b", 60, 6656, 17920, 64, 64, 104, kPaperVocab, false, false, false},
    {"llama-70b", 80, 8192, 28672, 64, 64, 128, kPaperVocab, false, false, false},
    {"llama-2-7b", 32, 4096, 11008, 32, 32, 128, 32000, false, false, false},
    {"llama-2-13b", 40, 5120, 13824, 40, 40, 128, 32000, false, false, false},
    {"llama-2-70b", 80, 8192, 28672, 64, 8, 128, 32000, false, false, false},
    {"llama-3.1-8b", 32, 4096, 14336, 32, 8, 128, 128256, false, false, false},
    {"llama-3.1-70b", 80, 8192, 28672, 64, 8, 128, 128256, false, false, false},
    {"llama-3.2-1b", 16, 2048, 8192, 32, 8, 64, 128256, true, false, false},
    {"llama-3.2-3b", 28, 3072, 8192, 24, 8, 128, 128256, true, false, false},
    {"qwen2-7b", 28, 3584, 18944, 28, 4, 128, 152064, false, true, false},
    {"qwen2.5-0.5b", 24, 896, 4864, 14, 2, 64, 151936, true, true, false},
    {"qwen2.5-1.5b", 28, 1536, 8960, 12, 2, 128, 151936, true, true, false},
    {"qwen2.5-7b", 28, 3584, 18944, 28, 4, 128, 152064, false, true, false},
    {"qwen2.5-14b", 48, 5120, 13824, 40, 8, 128, 152064, false, true, false},
    {"qwen2.5-32b", 64, 5120, 27648, 40, 8, 128, 152064, false, true, false},
    {"qwen2.5-72b", 80, 8192, 29568, 64, 8, 128, 152064, false, true, false},
    {"qwen3-4b", 36, 2560, 9728, 32, 8, 128, 151936, true, false, true},
    {"qwen3-8b", 36, 4096, 12288, 32, 8, 128, 151936, false, false, true},
};

}  // namespace

std::optional<ModelSpec> model_preset(const std::string& name) {
  for (const ModelSpec& model : kModels) {
    if (model.name == name) return model;
  }
  return std::nullopt;
}

std::string model_preset_names() {
  std::string names;
  for (const ModelSpec& model : kModels) {
    if (!names.empty()) names += ", ";
    names += model.name;
  }
  return names;
}

}  // namespace hydraulis::detail
