#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.h"
#include "costmodel/presets/models.h"
#include "runtime/hugging_face.h"

namespace hydraulis {
namespace {

/// Defaults of transformers' configuration classes for fields that a config.json leaves out.
struct FamilyDefaults {
  const char* model_type;
  double norm_epsilon;
  std::int64_t max_positions;
};
constexpr std::array kDefaults = {
    FamilyDefaults{"llama", 1e-6, 2048},
    FamilyDefaults{"qwen2", 1e-6, 32768},
    FamilyDefaults{"qwen3", 1e-6, 32768},
    FamilyDefaults{"mistral", 1e-6, 131072},
};
constexpr std::int64_t kMostPositions = std::int64_t{1} << 40;

const FamilyDefaults& defaults_of(const std::string& model_type) {
  const auto* found = std::ranges::find_if(
      kDefaults, [&](const auto& family) { return model_type == family.model_type; });
  if (found == kDefaults.end()) throw std::logic_error("no defaults for " + model_type);
  return *found;
}

bool given(const Json& json, const char* field) {
  return json.contains(field) && !json.at(field).is_null();
}

/// What one of `rope_scaling` and `rope_parameters` says; parse_model_config has checked its type.
RotaryScaling parse_scaling(const Json& json, const std::string& where, const std::string& field) {
  for (const auto& item : json.items()) {
    if (item.value().is_object()) {
      throw InputError(
          "{}: field '{}.{}' is an object: rotary parameters by layer type are not "
          "supported",
          where, field, item.key());
    }
  }
  JsonFields rope(json, where, field);
  RotaryScaling scaling;
  const std::string type = rope.text_or("rope_type", rope.text_or("type", "default"));
  if (type == "default") return scaling;
  scaling.factor = rope.positive("factor");
  if (type == "linear") {
    scaling.kind = RotaryScaling::Kind::linear;
    return scaling;
  }
  scaling.kind = RotaryScaling::Kind::llama3;
  scaling.low_frequency_factor = rope.positive("low_freq_factor");
  scaling.high_frequency_factor = rope.positive("high_freq_factor");
  scaling.original_context = rope.positive("original_max_position_embeddings");
  if (scaling.high_frequency_factor <= scaling.low_frequency_factor) {
    throw InputError("{} is {}, expected more than low_freq_factor ({})",
                     rope.name("high_freq_factor"), scaling.high_frequency_factor,
                     scaling.low_frequency_factor);
  }
  return scaling;
}

void parse_rotary(const Json& json, const std::string& where, DecoderSpec& decoder) {
  bool have_theta = false;
  std::string theta_field;
  const auto take_theta = [&](const Json& object, const std::string& prefix) {
    JsonFields fields(object, where, prefix);
    if (!given(object, "rope_theta")) return;
    const double theta = fields.positive("rope_theta");
    if (have_theta && theta != decoder.rotary_theta) {
      throw InputError("{} is {}, but {} is {}", fields.name("rope_theta"), theta, theta_field,
                       decoder.rotary_theta);
    }
    have_theta = true;
    theta_field = prefix.empty() ? "rope_theta" : prefix + ".rope_theta";
    decoder.rotary_theta = theta;
  };
  take_theta(json, "");
  bool have_scaling = false;
  for (const char* field : {"rope_parameters", "rope_scaling"}) {
    if (!given(json, field)) continue;
    take_theta(json.at(field), field);
    const RotaryScaling scaling = parse_scaling(json.at(field), where, field);
    if (have_scaling && scaling != decoder.rotary_scaling) {
      throw InputError("{}: fields 'rope_parameters' and 'rope_scaling' differ", where);
    }
    have_scaling = true;
    decoder.rotary_scaling = scaling;
  }
}

Json rotary_json(const RotaryScaling& scaling) {
  switch (scaling.kind) {
    case RotaryScaling::Kind::none:
      break;
    case RotaryScaling::Kind::linear:
      return {{"rope_type", "linear"}, {"factor", scaling.factor}};
    case RotaryScaling::Kind::llama3: {
      Json json = {{"rope_type", "llama3"},
                   {"factor", scaling.factor},
                   {"low_freq_factor", scaling.low_frequency_factor},
                   {"high_freq_factor", scaling.high_frequency_factor},
                   {"original_max_position_embeddings", scaling.original_context}};
      // Transformers warns of a context that is not a whole number.
      const auto whole = static_cast<std::int64_t>(scaling.original_context);
      if (static_cast<double>(whole) == scaling.original_context) {
        json["original_max_position_embeddings"] = whole;
      }
      return json;
    }
  }
  return {{"rope_type", "default"}};
}

}  // namespace

DecoderSpec parse_decoder_config(const Json& json, const std::string& where) {
  DecoderSpec decoder;
  decoder.shape = parse_model_config(json, where);
  const FamilyDefaults& defaults = defaults_of(decoder.shape.name);
  const auto positive_or = [&](const char* field, double fallback) {
    return given(json, field) ? JsonFields(json, where, "").positive(field) : fallback;
  };
  decoder.norm_epsilon = positive_or("rms_norm_eps", defaults.norm_epsilon);
  decoder.initializer_range = positive_or("initializer_range", 0.02);
  decoder.max_positions =
      JsonFields(json, where, "")
          .integer_or("max_position_embeddings", defaults.max_positions, 1, kMostPositions);
  if (given(json, "attention_dropout") &&
      JsonFields(json, where, "").number("attention_dropout") != 0) {
    throw InputError("{}: field 'attention_dropout' is not 0, which is not supported", where);
  }
  parse_rotary(json, where, decoder);
  return decoder;
}

DecoderSpec load_decoder(const std::string& preset_or_path) {
  DecoderSpec decoder;
  if (const auto preset = detail::model_preset(preset_or_path)) {
    decoder.shape = *preset;
    return decoder;
  }
  decoder.shape = load_model(preset_or_path);  // the model's own errors, and its name
  std::filesystem::path path = preset_or_path;
  std::error_code ec;
  if (std::filesystem::is_directory(path, ec)) path /= "config.json";
  const std::string name = decoder.shape.name;
  decoder = parse_decoder_config(read_json_file(path), path.string());
  decoder.shape.name = name;
  return decoder;
}

Json decoder_config(const DecoderSpec& decoder, StoredType type) {
  const ModelSpec& shape = decoder.shape;
  const bool qwen2 = shape.qkv_bias;
  const bool qwen3 = shape.qk_norm;
  Json json = {{"architectures", Json::array({qwen3   ? "Qwen3ForCausalLM"
                                              : qwen2 ? "Qwen2ForCausalLM"
                                                      : "LlamaForCausalLM"})},
               {"model_type", qwen3   ? "qwen3"
                              : qwen2 ? "qwen2"
                                      : "llama"},
               {"vocab_size", shape.vocab},
               {"hidden_size", shape.hidden},
               {"intermediate_size", shape.ffn_hidden},
               {"num_hidden_layers", shape.layers},
               {"num_attention_heads", shape.heads},
               {"num_key_value_heads", shape.kv_heads},
               {"head_dim", shape.head_dim},
               {"hidden_act", "silu"},
               {"max_position_embeddings", decoder.max_positions},
               {"initializer_range", decoder.initializer_range},
               {"rms_norm_eps", decoder.norm_epsilon},
               {"tie_word_embeddings", shape.tied_embeddings},
               {"attention_dropout", 0.0},
               {"use_cache", true},
               {"bos_token_id", nullptr},
               {"eos_token_id", nullptr},
               {"pad_token_id", nullptr}};
  if (qwen2 || qwen3) {
    json["use_sliding_window"] = false;
  }
  if (!qwen2) json["attention_bias"] = false;
  if (!qwen2 && !qwen3) json["mlp_bias"] = false;
  // Transformers 4 reads the first two fields, transformers 5 the third.
  const Json rotary = rotary_json(decoder.rotary_scaling);
  json["rope_theta"] = decoder.rotary_theta;
  json["rope_scaling"] =
      decoder.rotary_scaling.kind == RotaryScaling::Kind::none ? Json(nullptr) : rotary;
  json["rope_parameters"] = rotary;
  json["rope_parameters"]["rope_theta"] = decoder.rotary_theta;
  json["torch_dtype"] = torch_name(type);  // transformers 4
  json["dtype"] = torch_name(type);        // transformers 5
  return json;
}

}  // namespace hydraulis
