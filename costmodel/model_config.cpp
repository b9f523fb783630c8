#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "costmodel/model_spec.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kMost = 1 << 28;

struct Family {
  const char* model_type;
  const char* architecture;
  bool qkv_bias;
  bool qk_norm;
};

constexpr std::array kFamilies = {
    Family{"llama", "LlamaForCausalLM", false, false},
    Family{"qwen2", "Qwen2ForCausalLM", true, false},
    Family{"qwen3", "Qwen3ForCausalLM", false, true},
    Family{"mistral", "MistralForCausalLM", false, false},
};

/// Fields that only a mixture of experts or latent attention has.
constexpr std::array kForeignFields = {"num_local_experts",     "num_experts",  "n_routed_experts",
                                       "moe_intermediate_size", "kv_lora_rank", "q_lora_rank"};

bool given(JsonFields& fields, const Json& json, const std::string& field) {
  return fields.has(field) && !json.at(field).is_null();
}

const Family& family_of(const Json& json, JsonFields& fields, const std::string& where) {
  std::string type = given(fields, json, "model_type") ? fields.text("model_type") : "";
  std::string architecture;
  if (given(fields, json, "architectures")) {
    const Json& list = fields.at("architectures");
    if (!list.is_array() || (!list.empty() && !list[0].is_string())) {
      throw InputError("{} is not a list of names", fields.name("architectures"));
    }
    if (!list.empty()) architecture = list[0].get<std::string>();
  }
  for (const Family& family : kFamilies) {
    if (type.empty() ? architecture == family.architecture
                     : type == family.model_type &&
                           (architecture.empty() || architecture == family.architecture)) {
      return family;
    }
  }
  throw InputError(
      "{}: model family '{}{}{}' cannot be represented (a dense decoder: llama, qwen2, "
      "qwen3 or mistral, for causal language modelling)",
      where, type, !type.empty() && !architecture.empty() ? " / " : "", architecture);
}

/// The rotary scaling changes no cost, but a type we do not know would be another model.
void check_rotary(const Json& json, JsonFields& fields, const std::string& where) {
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    if (!given(fields, json, field)) continue;
    JsonFields rope(fields.at(field), where, field);
    const bool has_new = rope.has("rope_type");
    const bool has_old = rope.has("type");
    const std::string type = has_new   ? rope.text("rope_type")
                             : has_old ? rope.text("type")
                                       : std::string("default");
    if (has_new && has_old && rope.text("type") != type) {
      throw InputError("{} is '{}' but rope_type is '{}'", rope.name("type"), rope.text("type"),
                       type);
    }
    if (!has_new && !has_old && std::string(field) == "rope_scaling") {
      throw InputError("{} is missing", rope.name("rope_type"));
    }
    if (type != "default" && type != "linear" && type != "llama3") {
      throw InputError("{} is '{}', which is not supported; expected default, linear or llama3",
                       rope.name(has_new ? "rope_type" : "type"), type);
    }
    if (type != "default") rope.positive("factor");
    if (type == "llama3") {
      rope.positive("low_freq_factor");
      rope.positive("high_freq_factor");
      rope.positive("original_max_position_embeddings");
    }
    if (rope.has("rope_theta")) rope.positive("rope_theta");
  }
  if (given(fields, json, "rope_theta")) fields.positive("rope_theta");
  if (given(fields, json, "partial_rotary_factor") && fields.number("partial_rotary_factor") != 1) {
    throw InputError("{} is {}, expected 1: partial rotation is not supported",
                     fields.name("partial_rotary_factor"), fields.number("partial_rotary_factor"));
  }
}

/// A window shorter than the context makes attention another function of the length.
void check_window(const Json& json, JsonFields& fields, const Family& family) {
  const bool mistral = std::string(family.model_type) == "mistral";
  const bool by_default = mistral && !fields.has("sliding_window");
  const bool used = mistral || fields.boolean_or("use_sliding_window", false);
  if (used && (by_default || given(fields, json, "sliding_window"))) {
    const std::int64_t window = by_default ? 4096 : fields.integer("sliding_window", 1, kMost);
    const std::int64_t context = fields.integer_or("max_position_embeddings", kMost, 1, kMost);
    if (window < context) {
      throw InputError(
          "{} is {}{}, less than the context: sliding-window attention is not "
          "supported (null switches it off)",
          fields.name("sliding_window"), window, by_default ? " by default" : "");
    }
  }
  if (given(fields, json, "layer_types")) {
    const Json& types = fields.at("layer_types");
    const bool full =
        types.is_array() && std::all_of(types.begin(), types.end(),
                                        [](const Json& t) { return t == "full_attention"; });
    if (!full) {
      throw InputError("{} has layers other than full_attention, which are not supported",
                       fields.name("layer_types"));
    }
  }
}

void check_structure(const Json& json, JsonFields& fields) {
  for (const char* field : kForeignFields) {
    if (given(fields, json, field)) {
      throw InputError("{} marks a mixture of experts or latent attention, which is not supported",
                       fields.name(field));
    }
  }
  for (const char* field : {"attention_bias", "mlp_bias"}) {
    if (given(fields, json, field) && fields.boolean_or(field, false)) {
      throw InputError("{} is true, which is not supported", fields.name(field));
    }
  }
  if (given(fields, json, "hidden_act") && fields.text("hidden_act") != "silu") {
    throw InputError("{} is '{}', expected 'silu'", fields.name("hidden_act"),
                     fields.text("hidden_act"));
  }
}

int kv_heads_of(const Json& json, JsonFields& fields, const Family& family, int heads) {
  const std::string field = "num_key_value_heads";
  if (given(fields, json, field)) return static_cast<int>(fields.integer(field, 1, kMost));
  // Null means one per query head everywhere; absent means that only for llama (the other families
  // have numbers of their own as defaults).
  if (!fields.has(field) && std::string(family.model_type) != "llama") {
    throw InputError("{} is missing", fields.name(field));
  }
  return heads;
}

int head_dim_of(const Json& json, JsonFields& fields, const Family& family,
                const ModelSpec& model) {
  if (given(fields, json, "head_dim"))
    return static_cast<int>(fields.integer("head_dim", 1, kMost));
  if (std::string(family.model_type) == "qwen3") return 128;  // the family's own default
  if (model.hidden % model.heads != 0) {
    throw InputError(
        "{} is {}, expected a multiple of num_attention_heads ({}) or an explicit "
        "head_dim",
        fields.name("hidden_size"), model.hidden, model.heads);
  }
  return model.hidden / model.heads;
}

}  // namespace

ModelSpec parse_model_config(const Json& json, const std::string& where) {
  JsonFields fields(json, where, "");
  const Family& family = family_of(json, fields, where);
  check_structure(json, fields);
  check_rotary(json, fields, where);
  check_window(json, fields, family);
  ModelSpec model;
  model.name = family.model_type;
  model.layers = static_cast<int>(fields.integer("num_hidden_layers", 1, kMost));
  model.hidden = static_cast<int>(fields.integer("hidden_size", 1, kMost));
  model.ffn_hidden = static_cast<int>(fields.integer("intermediate_size", 1, kMost));
  model.heads = static_cast<int>(fields.integer("num_attention_heads", 1, kMost));
  model.kv_heads = kv_heads_of(json, fields, family, model.heads);
  model.head_dim = head_dim_of(json, fields, family, model);
  model.vocab = static_cast<int>(fields.integer("vocab_size", 1, kMost));
  model.tied_embeddings = fields.boolean_or("tie_word_embeddings", false);
  model.qkv_bias = family.qkv_bias;
  model.qk_norm = family.qk_norm;
  check_model(model, where);
  return model;
}

}  // namespace hydraulis
