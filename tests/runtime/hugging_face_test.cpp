#include "runtime/hugging_face.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/random.h"
#include "tests/base/temporary_folder.h"

namespace hydraulis {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

DecoderSpec made(const std::string& name) {
  return load_decoder(HYDRAULIS_TEST_DATA "/hf_configs/" + name + ".json");
}
std::string refusal(const std::string& name) {
  return message_of<InputError>([&] { made(name); });
}

TEST(HuggingFaceConfig, ReadsRotaryParametersOfBothStyles) {
  const DecoderSpec plain = made("tiny_ok");
  EXPECT_EQ(plain.rotary_theta, 10000);
  EXPECT_EQ(plain.rotary_scaling, RotaryScaling());
  EXPECT_EQ(plain.norm_epsilon, 1e-5);
  EXPECT_EQ(plain.max_positions, 128);
  EXPECT_EQ(plain.shape.head_dim, 16);
  EXPECT_EQ(made("rope_scaling_null").rotary_scaling, RotaryScaling());

  const DecoderSpec llama3 = made("rope_llama3");
  EXPECT_EQ(llama3.rotary_theta, 500000);
  EXPECT_EQ(llama3.rotary_scaling, (RotaryScaling{RotaryScaling::Kind::llama3, 8, 1, 4, 8192}));
  const DecoderSpec linear = made("rope_old_type_key");
  EXPECT_EQ(linear.rotary_scaling.kind, RotaryScaling::Kind::linear);
  EXPECT_EQ(linear.rotary_scaling.factor, 2);
  const DecoderSpec fresh = made("rope_parameters_new_style");
  EXPECT_EQ(fresh.rotary_theta, 1000000);
  EXPECT_EQ(fresh.rotary_scaling, RotaryScaling());

  const DecoderSpec qwen3 = made("qwen3_4b_head_dim");
  EXPECT_EQ(qwen3.norm_epsilon, 1e-6);  // the family's default
  EXPECT_EQ(qwen3.shape.head_dim, 128);
  EXPECT_TRUE(qwen3.shape.qk_norm);
}

TEST(HuggingFaceConfig, RefusesByName) {
  EXPECT_THAT(refusal("rope_yarn"), HasSubstr("'yarn'"));
  EXPECT_THAT(refusal("head_dim_odd"), HasSubstr("head_dim"));
  EXPECT_THAT(refusal("zero_layers"), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(refusal("intermediate_null"), HasSubstr("intermediate_size"));
  const TemporaryFolder folder;
  const Json base = read_json_file(HYDRAULIS_TEST_DATA "/hf_configs/tiny_ok.json");
  const auto changed = [&](const Json& change) {
    Json json = base;
    json.update(change);
    return message_of<InputError>([&] { parse_decoder_config(json, "config.json"); });
  };
  EXPECT_THAT(changed({{"mlp_bias", true}}), HasSubstr("mlp_bias"));
  EXPECT_THAT(changed({{"attention_dropout", 0.1}}), HasSubstr("attention_dropout"));
  EXPECT_THAT(changed({{"rms_norm_eps", 0}}), HasSubstr("rms_norm_eps"));
  EXPECT_THAT(changed({{"rope_theta", 5e5}, {"rope_parameters", {{"rope_theta", 1e4}}}}),
              HasSubstr("'rope_parameters.rope_theta' is 10000, but rope_theta is 500000"));
  EXPECT_THAT(changed({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2}}},
                       {"rope_parameters", {{"rope_type", "default"}}}}),
              HasSubstr("differ"));
  EXPECT_THAT(changed({{"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}}),
              HasSubstr("by layer type"));
  EXPECT_THAT(changed({{"rope_scaling",
                        {{"rope_type", "llama3"},
                         {"factor", 8},
                         {"low_freq_factor", 4},
                         {"high_freq_factor", 4},
                         {"original_max_position_embeddings", 64}}}}),
              HasSubstr("more than low_freq_factor"));
}

TEST(HuggingFaceConfig, WhatIsWrittenIsReadAgain) {
  for (const char* name :
       {"tiny_ok", "rope_llama3", "rope_old_type_key", "layers_30", "rope_parameters_new_style",
        "qwen3_4b_head_dim", "tinyllama_like_8q_2kv", "kv_heads_null", "vocab_65535_tp2"}) {
    const DecoderSpec decoder = made(name);
    const DecoderSpec again =
        parse_decoder_config(decoder_config(decoder, StoredType::bf16), "config.json");
    EXPECT_EQ(again.shape.layers, decoder.shape.layers);
    EXPECT_EQ(again.shape.kv_heads, decoder.shape.kv_heads);
    EXPECT_EQ(again.shape.head_dim, decoder.shape.head_dim);
    EXPECT_EQ(again.shape.tied_embeddings, decoder.shape.tied_embeddings);
    EXPECT_EQ(again.shape.qk_norm, decoder.shape.qk_norm);
    EXPECT_EQ(parameter_count(again.shape), parameter_count(decoder.shape)) << name;
    EXPECT_EQ(again.rotary_scaling, decoder.rotary_scaling) << name;
    EXPECT_EQ(again.rotary_theta, decoder.rotary_theta);
    EXPECT_EQ(again.norm_epsilon, decoder.norm_epsilon);
    EXPECT_EQ(again.max_positions, decoder.max_positions);
    EXPECT_EQ(again.initializer_range, decoder.initializer_range);
  }
  const DecoderSpec biased = load_decoder("qwen2.5-0.5b");
  EXPECT_TRUE(
      parse_decoder_config(decoder_config(biased, StoredType::f32), "config.json").shape.qkv_bias);
}

TEST(Decoder, Llama3FrequenciesTakeAllThreeBranches) {
  // Llama 3.1: wavelengths under 8192/4 kept, over 8192 stretched 8 times.
  DecoderSpec decoder;
  decoder.shape.head_dim = 128;
  decoder.rotary_theta = 500000;
  decoder.rotary_scaling = {RotaryScaling::Kind::llama3, 8, 1, 4, 8192};
  const auto scaled = inverse_frequencies(decoder);
  decoder.rotary_scaling = {};
  const auto plain = inverse_frequencies(decoder);
  ASSERT_EQ(scaled.size(), 64u);
  int kept = 0;
  int stretched = 0;
  for (std::size_t i = 0; i < scaled.size(); ++i) {
    EXPECT_NEAR(plain[i], std::pow(500000.0, -static_cast<double>(i) / 64), 1e-15);
    const double wave = 2 * std::numbers::pi / plain[i];
    if (wave < 2048) {
      EXPECT_EQ(scaled[i], plain[i]);
      ++kept;
    } else if (wave > 8192) {
      EXPECT_EQ(scaled[i], plain[i] / 8);
      ++stretched;
    } else {
      EXPECT_GT(scaled[i], plain[i] / 8);
      EXPECT_LT(scaled[i], plain[i]);
    }
  }
  EXPECT_EQ(kept, 29);  // counted from the definition: 500000^(i/64)·2π < 2048 for i ≤ 28
  EXPECT_EQ(stretched, 29);
}

/// A checkpoint with the given configuration and random weights.
class Checkpoint {
 public:
  Checkpoint(const Json& config, StoredType type) : type_(type) {
    folder.write("config.json", to_text(config));
    for (const auto& tensor : logical_tensors(parse_decoder_config(config, "config.json").shape)) {
      tensors.push_back({tensor.name, type, tensor.shape});
    }
  }
  void write() const {
    // A generator a tensor, so that a value does not depend on the order they are asked for.
    write_safetensors<double>(
        folder / "model.safetensors", tensors,
        [&](const StoredTensor& tensor, std::int64_t first, std::span<double> values) {
          for (double& x : values) x = value(tensor.name, first++);
        });
  }
  static double value(const std::string& name, std::int64_t i) {
    if (name == "lm_head.weight" || name == "model.embed_tokens.weight") {
      Random random(1, static_cast<std::uint64_t>(i));
      return random.uniform() - 0.5;
    }
    Random random(std::hash<std::string>()(name), static_cast<std::uint64_t>(i));
    return random.uniform() - 0.5;
  }
  std::string refusal() const {
    write();
    return message_of<InputError>([&] { const HuggingFaceModel model(folder.path()); });
  }
  TemporaryFolder folder;
  std::vector<StoredTensor> tensors;

 private:
  StoredType type_;
};

Json config(bool tied) {
  Json json = read_json_file(HYDRAULIS_TEST_DATA "/hf_configs/tinyllama_like_8q_2kv.json");
  json["tie_word_embeddings"] = tied;
  return json;
}

LogicalSource source_of(const HuggingFaceModel& model) {
  return [&model](const LogicalTensor& tensor, std::int64_t first, std::span<double> values) {
    const auto at = std::ranges::find(model.tensors(), tensor.name, &LogicalTensor::name);
    model.read<double>(static_cast<std::size_t>(at - model.tensors().begin()), first, values);
  };
}

TEST(HuggingFace, ImportThenExportIsByteEqualInEveryType) {
  for (const bool tied : {false, true}) {
    for (const StoredType type :
         {StoredType::f32, StoredType::bf16, StoredType::f16, StoredType::f64}) {
      const Checkpoint checkpoint(config(tied), type);
      checkpoint.write();
      const HuggingFaceModel model(checkpoint.folder.path());
      EXPECT_THAT(model.warnings(), ElementsAre());
      EXPECT_EQ(model.type(0), type);
      export_hugging_face(checkpoint.folder / "out", model.decoder(), {type, 1u << 30},
                          source_of(model));
      EXPECT_EQ(read_text_file(checkpoint.folder / "out/model.safetensors"),
                read_text_file(checkpoint.folder / "model.safetensors"));
      const HuggingFaceModel again(checkpoint.folder / "out");
      EXPECT_EQ(again.decoder().shape.tied_embeddings, tied);
    }
  }
}

TEST(HuggingFace, ShardsHoldTheSameTensorsAndTheIndexCountsThem) {
  const Checkpoint checkpoint(config(false), StoredType::bf16);
  checkpoint.write();
  const HuggingFaceModel model(checkpoint.folder.path());
  export_hugging_face(checkpoint.folder / "out", model.decoder(), {StoredType::bf16, 20000},
                      source_of(model));
  const Json index = read_json_file(checkpoint.folder / "out/model.safetensors.index.json");
  EXPECT_EQ(index.at("metadata").at("total_size").get<std::int64_t>(),
            2 * parameter_count(model.decoder().shape));
  const HuggingFaceModel sharded(checkpoint.folder / "out");
  for (std::size_t i = 0; i < model.tensors().size(); ++i) {
    std::vector<double> a(static_cast<std::size_t>(model.tensors()[i].elements()));
    std::vector<double> b(a.size());
    model.read<double>(i, 0, a);
    sharded.read<double>(i, 0, b);
    EXPECT_EQ(a, b) << model.tensors()[i].name;
  }
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(checkpoint.folder / "out")) {
    if (entry.path().extension() == ".safetensors") ++files;
  }
  EXPECT_GT(files, 3u);
}

TEST(HuggingFace, TiedModelsMayStoreTheirHeadToo) {
  Checkpoint checkpoint(config(true), StoredType::f32);
  const std::vector<std::int64_t> shape = checkpoint.tensors[0].shape;
  ASSERT_EQ(checkpoint.tensors[0].name, "model.embed_tokens.weight");
  checkpoint.tensors.push_back({"lm_head.weight", StoredType::f32, shape});
  checkpoint.tensors.push_back(
      {"model.layers.0.self_attn.rotary_emb.inv_freq", StoredType::f32, {4}});
  checkpoint.write();
  EXPECT_THAT(HuggingFaceModel(checkpoint.folder.path()).warnings(), ElementsAre());
  checkpoint.tensors[checkpoint.tensors.size() - 2].shape = {shape[1], shape[0]};
  checkpoint.write();
  EXPECT_THAT(HuggingFaceModel(checkpoint.folder.path()).warnings(),
              ElementsAre(HasSubstr("differs from the embedding")));
}

TEST(HuggingFace, RefusesMissingForeignAndMisshapenTensors) {
  {
    Checkpoint untied_without_head(config(false), StoredType::f32);
    std::erase_if(untied_without_head.tensors,
                  [](const auto& tensor) { return tensor.name == "lm_head.weight"; });
    EXPECT_THAT(untied_without_head.refusal(), HasSubstr("'lm_head.weight' is missing; if the"));
  }
  {
    Checkpoint extra(config(false), StoredType::f32);
    extra.tensors.push_back({"model.layers.0.self_attn.q_proj.bias", StoredType::f32, {64}});
    EXPECT_THAT(extra.refusal(), HasSubstr("'model.layers.0.self_attn.q_proj.bias' is not part"));
  }
  {
    Checkpoint transposed(config(false), StoredType::f32);
    for (auto& tensor : transposed.tensors) {
      if (tensor.name == "model.layers.1.mlp.down_proj.weight") {
        std::swap(tensor.shape[0], tensor.shape[1]);
      }
    }
    EXPECT_THAT(transposed.refusal(), HasSubstr("'model.layers.1.mlp.down_proj.weight' has shape"));
  }
}

TEST(HuggingFace, ExportLeavesNothingBehindWhenItFails) {
  const TemporaryFolder folder;
  const DecoderSpec decoder = made("tiny_ok");
  EXPECT_THROW(export_hugging_face(folder / "out", decoder, {StoredType::f16, 1u << 30},
                                   [](const LogicalTensor&, std::int64_t, std::span<double> x) {
                                     for (double& value : x) value = 1e6;
                                   }),
               InputError);
  EXPECT_TRUE(fs::is_empty(folder.path()));
  folder.write("file", "");
  EXPECT_THAT(
      message_of<InputError>([&] { export_hugging_face(folder / "file", decoder, {}, nullptr); }),
      HasSubstr("stands there already"));
}

}  // namespace
}  // namespace hydraulis
