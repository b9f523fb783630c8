#include "costmodel/model_spec.h"

#include <filesystem>

#include "base/error.h"
#include "costmodel/megatron_arguments.h"
#include "costmodel/presets/models.h"

namespace hydraulis {
namespace {

// Wide enough for any model there is, and no product of them overflows 64 bits.
constexpr int kMostLayers = 1 << 12;
constexpr int kMostHidden = 1 << 20;
constexpr int kMostFfn = 1 << 22;
constexpr int kMostHeads = 1 << 14;
constexpr int kMostHeadDim = 1 << 12;
constexpr int kMostVocab = 1 << 28;

void check_range(const std::string& where, const char* field, int value, int most) {
  if (value < 1 || value > most) {
    throw InputError("{}: field '{}' is {}, expected 1 to {}", where, field, value, most);
  }
}

std::string model_name_of(const std::filesystem::path& path) {
  const std::string stem = path.stem().string();
  const std::string folder = path.parent_path().filename().string();
  return stem == "config" && !folder.empty() ? folder : stem;
}

}  // namespace

std::int64_t layer_matrix_elements(const ModelSpec& model) {
  const std::int64_t hidden = model.hidden;
  const std::int64_t query = std::int64_t{model.heads} * model.head_dim;
  const std::int64_t key_value = std::int64_t{model.kv_heads} * model.head_dim;
  return 2 * hidden * query + 2 * hidden * key_value + 3 * hidden * model.ffn_hidden;
}

std::int64_t layer_parameters(const ModelSpec& model) {
  const std::int64_t head_dim = model.head_dim;
  std::int64_t count = layer_matrix_elements(model) + 2 * std::int64_t{model.hidden};
  if (model.qkv_bias) count += (model.heads + 2 * std::int64_t{model.kv_heads}) * head_dim;
  if (model.qk_norm) count += 2 * head_dim;
  return count;
}

std::int64_t embedding_parameters(const ModelSpec& model) {
  return std::int64_t{model.vocab} * model.hidden;
}

std::int64_t head_parameters(const ModelSpec& model) {
  return model.hidden + (model.tied_embeddings ? 0 : embedding_parameters(model));
}

std::int64_t parameter_count(const ModelSpec& model) {
  return model.layers * layer_parameters(model) + embedding_parameters(model) +
         head_parameters(model);
}

double training_flops(const ModelSpec& model, double sum_tokens, double sum_squares) {
  // A multiply-add is two operations; the embedding look-up multiplies nothing, the head does
  // whether or not it shares the embedding's matrix.
  const double elements =
      static_cast<double>(model.layers) * static_cast<double>(layer_matrix_elements(model)) +
      static_cast<double>(embedding_parameters(model));
  // Scores and values: 2·s²·heads·head_dim each, of which a causal mask leaves half.
  const double attention = 2.0 * model.heads * model.head_dim * model.layers;
  constexpr double kForwardAndBackward = 3;
  return kForwardAndBackward * (2 * elements * sum_tokens + attention * sum_squares);
}

void check_model(const ModelSpec& model, const std::string& where) {
  check_range(where, "num_hidden_layers", model.layers, kMostLayers);
  check_range(where, "hidden_size", model.hidden, kMostHidden);
  check_range(where, "intermediate_size", model.ffn_hidden, kMostFfn);
  check_range(where, "num_attention_heads", model.heads, kMostHeads);
  check_range(where, "num_key_value_heads", model.kv_heads, kMostHeads);
  check_range(where, "head_dim", model.head_dim, kMostHeadDim);
  check_range(where, "vocab_size", model.vocab, kMostVocab);
  if (model.heads % model.kv_heads != 0) {
    throw InputError(
        "{}: field 'num_key_value_heads' is {}, expected a divisor of "
        "num_attention_heads ({})",
        where, model.kv_heads, model.heads);
  }
  if (model.head_dim % 2 != 0) {
    throw InputError(
        "{}: field 'head_dim' is {}, expected an even number (rotary embedding turns "
        "pairs)",
        where, model.head_dim);
  }
}

ModelSpec load_model(const std::string& preset_or_path) {
  if (const auto preset = detail::model_preset(preset_or_path)) return *preset;
  if (preset_or_path.rfind(kMegatronPrefix, 0) == 0) {
    MegatronArguments arguments =
        read_megatron_arguments(preset_or_path.substr(std::string(kMegatronPrefix).size()));
    std::vector<std::string> notes;
    return megatron_model(arguments, notes);
  }
  std::filesystem::path path = preset_or_path;
  std::error_code ec;
  if (std::filesystem::is_directory(path, ec)) {
    path /= "config.json";
    if (!std::filesystem::exists(path, ec)) {
      throw InputError("model '{}': a folder without a config.json, expected a Hugging Face model",
                       preset_or_path);
    }
  }
  if (!std::filesystem::exists(path, ec)) {
    throw InputError("model '{}': neither a preset nor a file; presets are {}", preset_or_path,
                     detail::model_preset_names());
  }
  ModelSpec model = parse_model_config(read_json_file(path), path.string());
  model.name = model_name_of(path);
  return model;
}

}  // namespace hydraulis
