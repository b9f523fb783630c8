#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "runtime/decoder.h"
#include "runtime/safetensors.h"

namespace hydraulis {

/// A decoder from a preset's name (with RMS epsilon 1e-5, theta 10,000, no rotary scaling), a
/// Hugging Face config.json or the folder that holds one. Throws InputError; what cannot be trained
/// is refused by name.
DecoderSpec load_decoder(const std::string& preset_or_path);

/// The decoder of a parsed config.json; fields left out have the family's own defaults. The rotary
/// embedding is read from `rope_theta` and `rope_scaling` (transformers 4), from `rope_parameters`
/// (transformers 5) or from both where they agree; types default, linear and llama3.
DecoderSpec parse_decoder_config(const Json& json, const std::string& where);

/// The config.json of a decoder, which transformers 4.57 and 5 load, for weights stored as `type`.
Json decoder_config(const DecoderSpec& decoder, StoredType type);

/// A Hugging Face checkpoint: config.json with model.safetensors or its shards. Opening it checks
/// that exactly the model's tensors are there, in their shapes; others are refused by name
/// (rotary_emb.inv_freq of old checkpoints is left out, it follows from the configuration).
class HuggingFaceModel {
 public:
  explicit HuggingFaceModel(const std::filesystem::path& folder);

  const DecoderSpec& decoder() const { return decoder_; }
  /// logical_tensors() of the model.
  const std::vector<LogicalTensor>& tensors() const { return tensors_; }
  /// How tensors()[index] is stored.
  StoredType type(std::size_t index) const;
  /// Elements from `first` on of tensors()[index], rows first as in the file.
  template <typename T>
  void read(std::size_t index, std::int64_t first, std::span<T> values) const;
  /// What is odd, one sentence each.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  void check_tied_head();
  DecoderSpec decoder_;
  SafetensorsFolder folder_;
  std::vector<LogicalTensor> tensors_;
  std::vector<SafetensorsFolder::Place> places_;
  std::vector<std::string> warnings_;
};

struct ExportOptions {
  StoredType type = StoredType::bf16;
  std::uint64_t shard_bytes = 5'000'000'000;  ///< a file holds more only for a larger tensor
};

/// Hands out elements from `first` on of a logical tensor, rows first.
using LogicalSource =
    std::function<void(const LogicalTensor& tensor, std::int64_t first, std::span<double> values)>;

/// Writes a Hugging Face checkpoint into a new folder, which appears whole or not at all: one
/// model.safetensors, or shards with their index above the limit, and config.json. Throws
/// InputError: something other than an empty folder stands there, or a write fails.
void export_hugging_face(const std::filesystem::path& folder, const DecoderSpec& decoder,
                         const ExportOptions& options, const LogicalSource& source);

}  // namespace hydraulis
