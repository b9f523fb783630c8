#include "costmodel/model_spec.h"

#include <gtest/gtest.h>

#include "tests/costmodel/expect_error.h"

namespace hydraulis {
namespace {

std::string config(const std::string& name) {
  return std::string(HYDRAULIS_TEST_DATA) + "/hf_configs/" + name + ".json";
}

Json tiny() { return read_json_file(config("tiny_ok")); }

ModelSpec with(const std::string& field, const Json& value) {
  Json json = tiny();
  json[field] = value;
  return parse_model_config(json, "config.json");
}

void expect_refused(const std::string& field, const Json& value,
                    const std::vector<std::string>& parts) {
  expect_error<InputError>([&] { with(field, value); }, parts);
}

// Totals of the published checkpoints.
TEST(ModelSpec, ParameterCounts) {
  EXPECT_EQ(parameter_count(load_model("qwen2-7b")), 7'615'616'512);
  EXPECT_EQ(parameter_count(load_model("llama-3.2-1b")), 1'235'814'400);
  EXPECT_EQ(parameter_count(load_model("llama-2-7b")), 6'738'415'616);
  EXPECT_EQ(parameter_count(load_model("qwen3-4b")), 4'022'468'096);
  EXPECT_EQ(parameter_count(load_model("llama-2-13b")), 13'015'864'320);
  EXPECT_EQ(parameter_count(load_model("llama-2-70b")), 68'976'648'192);
  EXPECT_EQ(parameter_count(load_model("llama-3.1-8b")), 8'030'261'248);
  EXPECT_EQ(parameter_count(load_model("llama-3.1-70b")), 70'553'706'496);
  EXPECT_EQ(parameter_count(load_model("llama-3.2-3b")), 3'212'749'824);
  EXPECT_EQ(parameter_count(load_model("qwen2.5-0.5b")), 494'032'768);
  EXPECT_EQ(parameter_count(load_model("qwen2.5-1.5b")), 1'543'714'304);
  EXPECT_EQ(parameter_count(load_model("qwen2.5-14b")), 14'770'033'664);
  EXPECT_EQ(parameter_count(load_model("qwen2.5-32b")), 32'763'876'352);
  EXPECT_EQ(parameter_count(load_model("qwen2.5-72b")), 72'706'203'648);
  EXPECT_EQ(parameter_count(load_model("qwen3-8b")), 8'190'735'360);
}

TEST(ModelSpec, WrongFeedForwardWidthShows) {
  ModelSpec bad = load_model("llama-2-7b");
  bad.ffn_hidden = 16384;
  EXPECT_EQ(parameter_count(bad), 8'852'344'832);
}

TEST(ModelSpec, PartsAddUp) {
  for (const char* name : {"llama-32b", "qwen3-4b", "qwen2-7b"}) {
    const ModelSpec model = load_model(name);
    EXPECT_EQ(parameter_count(model), model.layers * layer_parameters(model) +
                                          embedding_parameters(model) + head_parameters(model));
  }
}

TEST(ModelSpec, ExplicitHeadDimWins) {
  const ModelSpec model = load_model(config("qwen3_4b_head_dim"));
  EXPECT_EQ(model.head_dim, 128);
  EXPECT_TRUE(model.qk_norm);
  EXPECT_TRUE(model.tied_embeddings);
  EXPECT_EQ(parameter_count(model), 4'022'468'096);
  // Query projection 2560 x 4096, not 2560 x 2560.
  EXPECT_EQ(std::int64_t{model.hidden} * model.heads * model.head_dim, 10'485'760);
}

TEST(ModelSpec, KeyValueHeads) {
  EXPECT_EQ(load_model(config("kv_heads_absent")).kv_heads, 4);
  EXPECT_EQ(load_model(config("kv_heads_null")).kv_heads, 4);
  EXPECT_EQ(load_model(config("tiny_ok")).kv_heads, 2);
  EXPECT_EQ(load_model(config("tinyllama_like_8q_2kv")).kv_heads, 2);
  expect_error<InputError>([] { load_model(config("heads_not_multiple_of_kv")); },
                           {"heads_not_multiple_of_kv.json", "num_key_value_heads", "4", "6"});
}

TEST(ModelSpec, BadSizesNameTheField) {
  expect_error<InputError>([] { load_model(config("head_dim_odd")); }, {"head_dim", "15", "even"});
  expect_error<InputError>([] { load_model(config("intermediate_null")); },
                           {"intermediate_null.json", "intermediate_size", "null"});
  expect_error<InputError>([] { load_model(config("zero_layers")); }, {"num_hidden_layers", "0"});
  expect_refused("hidden_size", 63, {"hidden_size", "multiple"});
  expect_refused("vocab_size", -1, {"vocab_size"});
  expect_refused("hidden_size", 1e30, {"hidden_size"});
  expect_refused("num_hidden_layers", 100000, {"num_hidden_layers", "4096"});
  expect_refused("num_hidden_layers", "two", {"num_hidden_layers"});
  expect_refused("tie_word_embeddings", 1, {"tie_word_embeddings"});
}

TEST(ModelSpec, RotaryTypes) {
  for (const char* name : {"rope_llama3", "rope_old_type_key", "rope_parameters_new_style",
                           "rope_scaling_null", "layers_30", "vocab_65535_tp2"}) {
    EXPECT_NO_THROW(load_model(config(name))) << name;
  }
  expect_error<InputError>([] { load_model(config("rope_yarn")); },
                           {"rope_yarn.json", "rope_scaling.type", "yarn", "not supported"});
  for (const char* type : {"dynamic", "longrope", "mrope", "future"}) {
    expect_refused("rope_scaling", {{"rope_type", type}, {"factor", 2}}, {"rope_scaling", type});
    expect_refused("rope_parameters", {{"rope_type", type}}, {"rope_parameters", type});
  }
  expect_refused("rope_scaling", {{"rope_type", "linear"}}, {"factor"});
  expect_refused("rope_scaling", {{"rope_type", "linear"}, {"type", "llama3"}, {"factor", 2}},
                 {"rope_scaling.type", "llama3", "linear"});
  expect_refused("rope_scaling", "linear", {"rope_scaling"});
}

TEST(ModelSpec, OtherFamiliesAreRefusedByName) {
  expect_refused("model_type", "mixtral", {"mixtral"});
  expect_refused("model_type", "deepseek_v3", {"deepseek_v3"});
  expect_refused("architectures", {"LlamaForSequenceClassification"},
                 {"LlamaForSequenceClassification"});
  expect_refused("num_local_experts", 8, {"num_local_experts", "mixture"});
  expect_refused("kv_lora_rank", 512, {"kv_lora_rank"});
  expect_refused("attention_bias", true, {"attention_bias"});
  expect_refused("hidden_act", "gelu", {"hidden_act", "gelu"});
  EXPECT_NO_THROW(with("attention_bias", false));
  expect_error<InputError>([] { parse_model_config(Json::array(), "x.json"); }, {"x.json"});
  expect_error<InputError>([] { load_model("no-such-model"); }, {"no-such-model", "llama-32b"});
}

TEST(ModelSpec, SlidingWindow) {
  Json json = tiny();
  json["model_type"] = "mistral";
  json["architectures"] = {"MistralForCausalLM"};
  json["sliding_window"] = nullptr;
  EXPECT_NO_THROW(parse_model_config(json, "x"));
  json["sliding_window"] = 64;
  expect_error<InputError>([&] { parse_model_config(json, "x"); }, {"sliding_window", "64"});
  json["sliding_window"] = 128;  // as long as the context: never active
  EXPECT_NO_THROW(parse_model_config(json, "x"));
}

// One layer by hand: h 4, 2 heads of 2, 1 KV head, f 8, V 16.
// Matrices: q 16, k 8, v 8, o 16, mlp 96 = 144. Head 64.
TEST(ModelSpec, FlopsByHand) {
  ModelSpec model{"tiny", 1, 4, 8, 2, 1, 2, 16, false, false, false};
  EXPECT_EQ(layer_matrix_elements(model), 144);
  EXPECT_DOUBLE_EQ(training_flops(model, 10, 0), 3 * 2 * (144 + 64) * 10);
  // Two products of 2·s²·heads·head_dim, half masked, times 3.
  EXPECT_DOUBLE_EQ(training_flops(model, 0, 100), 3 * 2 * 2 * 2 * 100);
  model.tied_embeddings = true;  // the head multiplies all the same
  EXPECT_DOUBLE_EQ(training_flops(model, 10, 0), 3 * 2 * (144 + 64) * 10);
}

// Eight documents of 1,024 in a pack of 8,192: attention is an eighth of one long document's.
TEST(ModelSpec, AttentionCountsSquaresPerSequence) {
  const ModelSpec model = load_model("llama-7b");
  const double linear = training_flops(model, 8192, 0);
  const double packed = training_flops(model, 8192, 8.0 * 1024 * 1024) - linear;
  const double whole = training_flops(model, 8192, 8192.0 * 8192) - linear;
  EXPECT_NEAR(whole / packed, 8, 1e-9);
}

}  // namespace
}  // namespace hydraulis
