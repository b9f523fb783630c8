#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "tests/cli/command.h"

namespace hydraulis {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kGolden = HYDRAULIS_TEST_DATA "/golden_llama_tied.safetensors";

/// A Hugging Face model made by PyTorch, in the folder `model`.
void make_model(const TemporaryFolder& folder) {
  fs::create_directory(folder / "model");
  const Json golden = read_json_file(HYDRAULIS_TEST_DATA "/golden_llama_tied.json");
  folder.write("model/config.json", golden.at("config").dump());
  fs::copy_file(kGolden, folder / "model/model.safetensors");
}

/// Header and data of a safetensors file apart: other writers pad headers differently.
std::pair<Json, std::string> parts_of(const fs::path& file) {
  const std::string bytes = read_text_file(file);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  return {Json::parse(bytes.substr(8, header)), bytes.substr(8 + header)};
}

TEST(CheckpointCommand, ImportShowAndExportKeepEveryBit) {
  const Command command;
  make_model(command.folder());
  const Json imported = command.json({"checkpoint", "import-hf", "model", "-o", "run"});
  EXPECT_EQ(imported.at("step"), 0);
  EXPECT_EQ(imported.at("checkpoint"), "run/step-00000000");

  const Json shown = command.json({"checkpoint", "show", "run", "--verify"});
  EXPECT_EQ(shown.at("parameters"), imported.at("parameters"));
  EXPECT_EQ(shown.at("model").at("vocab"), 97);
  EXPECT_EQ(shown.at("model").at("tied_embeddings"), true);
  EXPECT_EQ(shown.at("optimizer_states"), false);
  EXPECT_EQ(shown.at("type"), "float32");
  const Outcome text = command.run({"checkpoint", "show", "run/step-00000000"});
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, HasSubstr("model.layers.1.mlp.down_proj.weight"));

  command.json({"checkpoint", "export-hf", "run", "-o", "exported", "--type", "fp32"});
  const auto [header, data] = parts_of(command.folder() / "exported/model.safetensors");
  const auto [original_header, original_data] = parts_of(kGolden);
  EXPECT_EQ(data, original_data);
  EXPECT_EQ(nlohmann::json(header), nlohmann::json(original_header));  // whatever the order
  // bf16 halves it; a shard limit is for large models.
  command.json({"checkpoint", "export-hf", "run", "-o", "short"});
  EXPECT_EQ(parts_of(command.folder() / "short/model.safetensors").second.size() * 2, data.size());
  EXPECT_EQ(read_json_file(command.folder() / "short/config.json").at("dtype"), "bfloat16");
}

TEST(CheckpointCommand, RefusesInOneLine) {
  const Command command;
  make_model(command.folder());
  expect_refused(command.run({"checkpoint", "show", "absent"}), 2, "no such folder");
  expect_refused(command.run({"checkpoint", "show", "model"}), 2, "holds no whole checkpoint");
  expect_refused(command.run({"checkpoint", "import-hf", "model"}), 2, "--output");
  expect_refused(command.run({"checkpoint", "import-hf", "model", "-o", "model"}), 2,
                 "is the input's folder");
  expect_refused(command.run({"checkpoint", "import-hf", "model", "-o", "run", "--type", "int8"}),
                 2, "number format 'int8' is not known");
  ASSERT_EQ(command.run({"checkpoint", "import-hf", "model", "-o", "run"}).code, 0);
  expect_refused(command.run({"checkpoint", "import-hf", "model", "-o", "run"}), 2,
                 "holds a checkpoint of step 0 already");
  expect_refused(command.run({"checkpoint", "export-hf", "run", "-o", "model"}), 2,
                 "stands there already");
  const fs::path part = command.folder() / "run/step-00000000/part-00000-of-00001.safetensors";
  {
    std::fstream file(part, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(5000);
    file.put('\x55');
  }
  expect_refused(command.run({"checkpoint", "export-hf", "run", "-o", "x"}), 2, "checksum");
  expect_refused(command.run({"checkpoint", "show", "run/step-00000000", "--verify"}), 2,
                 "checksum");
  EXPECT_EQ(command.run({"checkpoint", "show", "run/step-00000000"}).code, 0) << "sizes only";
  EXPECT_FALSE(fs::exists(command.folder() / "x"));
}

TEST(CheckpointCommand, ConfigurationsThatCannotBeTrainedAreRefusedByName) {
  const Command command;
  make_model(command.folder());
  fs::copy_file(HYDRAULIS_TEST_DATA "/hf_configs/rope_yarn.json",
                command.folder() / "model/config.json", fs::copy_options::overwrite_existing);
  expect_refused(command.run({"checkpoint", "import-hf", "model", "-o", "run"}), 2, "'yarn'");
}

}  // namespace
}  // namespace hydraulis
