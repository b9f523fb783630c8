// `hydraulis checkpoint import-hf | export-hf | show`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "runtime/checkpoint_convert.h"

namespace hydraulis {
namespace {

constexpr std::uint64_t kLeastShardBytes = 1'000'000;
constexpr std::uint64_t kMostShardBytes = 1'000'000'000'000;

std::int64_t whole(std::uint64_t value) { return static_cast<std::int64_t>(value); }

void warn(const std::vector<std::string>& warnings) {
  for (const auto& warning : warnings) fmt::print(stderr, "hydraulis: warning: {}\n", warning);
}

Table figures() {
  Table table;
  table.columns = {{"figure", "figure", 0, Align::left}, {"value", "value", 1, Align::right}};
  return table;
}

Json model_json(const DecoderSpec& decoder) {
  const ModelSpec& shape = decoder.shape;
  return {{"name", shape.name},
          {"layers", shape.layers},
          {"hidden", shape.hidden},
          {"ffn_hidden", shape.ffn_hidden},
          {"heads", shape.heads},
          {"kv_heads", shape.kv_heads},
          {"head_dim", shape.head_dim},
          {"vocab", shape.vocab},
          {"tied_embeddings", shape.tied_embeddings}};
}

/// Checks the two folders of an import or export against each other and the output's name.
void refuse_same_folder(const std::string& input, const std::string& output) {
  std::error_code ec;
  if (std::filesystem::equivalent(input, output, ec) && !ec) {
    throw InputError("--output {}: is the input's folder", output);
  }
}

struct ConvertCommand {
  CommonOptions common;
  std::string input;
  std::string type;
  std::uint64_t shard_bytes = ExportOptions().shard_bytes;
};

void run_import(const ConvertCommand& command) {
  refuse_same_folder(command.input, command.common.output);
  const StoredType type = parse_training_type(command.type);
  const HuggingFaceModel model(command.input);
  warn(model.warnings());
  const CheckpointEntry entry = import_hugging_face(model, command.common.output, type);
  const std::int64_t parameters = parameter_count(model.decoder().shape);
  Report report;
  report.json = {{"checkpoint", entry.path.string()}, {"step", entry.step},
                 {"parameters", parameters},          {"tensors", model.tensors().size()},
                 {"type", torch_name(type)},          {"model", model_json(model.decoder())}};
  Table table = figures();
  table.rows = {{std::string("parameters"), parameters},
                {std::string("tensors"), whole(model.tensors().size())},
                {std::string("number format"), std::string(torch_name(type))}};
  table.notes.push_back("written to " + entry.path.string());
  report.tables = {table};
  emit(command.common, report, false);
}

void run_export(const ConvertCommand& command) {
  refuse_same_folder(command.input, command.common.output);
  ExportOptions options;
  options.type = parse_training_type(command.type);
  options.shard_bytes = command.shard_bytes;
  std::vector<std::string> notes;
  const CheckpointEntry entry = find_checkpoint(command.input, notes);
  warn(notes);
  export_checkpoint(entry.path, command.common.output, options);
  const DecoderSpec decoder = read_manifest(entry.path).decoder;
  const std::int64_t parameters = parameter_count(decoder.shape);
  Report report;
  report.json = {{"checkpoint", entry.path.string()}, {"step", entry.step},
                 {"output", command.common.output},   {"parameters", parameters},
                 {"type", torch_name(options.type)},  {"model", model_json(decoder)}};
  Table table = figures();
  table.rows = {{std::string("step"), entry.step},
                {std::string("parameters"), parameters},
                {std::string("number format"), std::string(torch_name(options.type))}};
  table.notes.push_back("written to " + command.common.output);
  report.tables = {table};
  emit(command.common, report, false);
}

struct ShowCommand {
  CommonOptions common;
  std::string checkpoint;
  bool verify = false;
};

Table summary_table(const CheckpointEntry& entry, const CheckpointManifest& manifest,
                    std::uint64_t bytes, bool with_optimizer, bool verified) {
  Table table = figures();
  table.rows = {{std::string("step"), manifest.step},
                {std::string("parameters"), parameter_count(manifest.decoder.shape)},
                {std::string("number format"), std::string(torch_name(manifest.type))},
                {std::string("optimizer states"), std::string(with_optimizer ? "yes" : "no")},
                {std::string("files"), whole(manifest.parts.size())},
                {std::string("bytes"), whole(bytes)}};
  for (const auto& [name, value] : manifest.statistics.items()) {
    if (value.is_number()) table.rows.push_back({name, value.get<double>()});
  }
  table.notes.push_back("checkpoint: " + entry.path.string());
  if (!manifest.decoder.shape.name.empty()) {
    table.notes.push_back("model: " + manifest.decoder.shape.name);
  }
  table.notes.push_back(verified ? "every checksum is right"
                                 : "sizes are right; --verify compares checksums as well");
  return table;
}

void run_show(const ShowCommand& command) {
  std::vector<std::string> notes;
  const CheckpointEntry entry = find_checkpoint(command.checkpoint, notes);
  warn(notes);
  const CheckpointManifest manifest = verify_checkpoint(entry.path, command.verify);
  const CheckpointTensors opened(entry.path, manifest);
  Table tensors;
  tensors.columns = {{"tensor", "tensor", 0, Align::left},
                     {"type", "format", 0, Align::left},
                     {"shape", "shape", 0, Align::left}};
  Json tensor_list = Json::array();
  bool with_optimizer = false;
  for (const StoredTensor& tensor : opened.tensors()) {
    with_optimizer = with_optimizer || tensor.name.starts_with("optimizer.");
    tensors.rows.push_back(
        {tensor.name, std::string(to_string(tensor.type)), Json(tensor.shape).dump()});
    tensor_list.push_back(
        {{"name", tensor.name}, {"type", to_string(tensor.type)}, {"shape", tensor.shape}});
  }
  Json parts = Json::array();
  std::uint64_t bytes = 0;
  for (const CheckpointPart& part : manifest.parts) {
    bytes += part.digest.bytes;
    parts.push_back({{"file", part.file},
                     {"bytes", part.digest.bytes},
                     {"crc32c", part.digest.crc32c},
                     {"tensors", part.tensors.size()}});
  }
  Report report;
  report.json = {{"checkpoint", entry.path.string()},
                 {"step", manifest.step},
                 {"model", model_json(manifest.decoder)},
                 {"parameters", parameter_count(manifest.decoder.shape)},
                 {"type", torch_name(manifest.type)},
                 {"optimizer_states", with_optimizer},
                 {"verified", command.verify},
                 {"bytes", bytes},
                 {"parts", parts},
                 {"optimizer", manifest.optimizer},
                 {"data", manifest.data},
                 {"statistics", manifest.statistics},
                 {"tensors", tensor_list}};
  report.tables = {summary_table(entry, manifest, bytes, with_optimizer, command.verify), tensors};
  emit(command.common, report, false);
}

void add_import(CLI::App& checkpoint) {
  auto options = std::make_shared<ConvertCommand>();
  options->type = "fp32";
  CLI::App* command =
      checkpoint.add_subcommand("import-hf", "a Hugging Face model as a checkpoint to start from");
  command
      ->add_option("folder", options->input,
                   "folder with config.json and model.safetensors or its shards")
      ->required();
  command->add_option("--type", options->type, "number format to store: fp64, fp32, fp16 or bf16")
      ->capture_default_str();
  add_common_options(*command, options->common, Has::output | Has::format);
  command->get_option("--output")->required();
  command->footer(
      "-o names the folder of a run's checkpoints; step-00000000 is made there.\nExample:\n"
      "  hydraulis checkpoint import-hf Llama-3.2-1B -o checkpoints");
  command->callback([options] { run_import(*options); });
}

void add_export(CLI::App& checkpoint) {
  auto options = std::make_shared<ConvertCommand>();
  options->type = "bf16";
  CLI::App* command =
      checkpoint.add_subcommand("export-hf", "a checkpoint as a Hugging Face model");
  command
      ->add_option("checkpoint", options->input,
                   "a checkpoint, or the folder of a run's (the newest whole one)")
      ->required();
  command->add_option("--type", options->type, "number format to write: fp64, fp32, fp16 or bf16")
      ->capture_default_str();
  command
      ->add_option("--shard-bytes", options->shard_bytes,
                   "largest file; more is written as shards with an index")
      ->check(whole_number(kLeastShardBytes, kMostShardBytes))
      ->capture_default_str();
  add_common_options(*command, options->common, Has::output | Has::format);
  command->get_option("--output")->required();
  command->footer(
      "-o names a new folder.\nExample:\n"
      "  hydraulis checkpoint export-hf checkpoints -o exported");
  command->callback([options] { run_export(*options); });
}

void add_show(CLI::App& checkpoint) {
  auto options = std::make_shared<ShowCommand>();
  CLI::App* command = checkpoint.add_subcommand("show", "what a checkpoint holds");
  command
      ->add_option("checkpoint", options->checkpoint,
                   "a checkpoint, or the folder of a run's (the newest whole one)")
      ->required();
  command->add_flag("--verify", options->verify, "compare every file with its checksum");
  add_common_options(*command, options->common, Has::format);
  command->footer("Example:\n  hydraulis checkpoint show checkpoints --verify");
  command->callback([options] { run_show(*options); });
}

}  // namespace

void add_checkpoint_commands(CLI::App& app) {
  CLI::App* checkpoint =
      app.add_subcommand("checkpoint", "Hugging Face models in and out; what a checkpoint holds");
  checkpoint->require_subcommand(1);
  checkpoint->footer("Example:\n  hydraulis checkpoint show checkpoints");
  add_import(*checkpoint);
  add_export(*checkpoint);
  add_show(*checkpoint);
}

}  // namespace hydraulis
