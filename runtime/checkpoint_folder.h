#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "runtime/decoder.h"
#include "runtime/safetensors.h"

namespace hydraulis {

// A run's checkpoints: ROOT/step-00000123/ holds safetensors files of logical tensors (parameters
// under their Hugging Face names, optimizer states as "optimizer.m.NAME" and "optimizer.v.NAME"),
// each written by one rank, and manifest.json, written last. A checkpoint is filled as
// ROOT/step-00000123.tmp and renamed when all of it is on disk, so whatever stands under a final
// name was complete. Nothing in it depends on the number of ranks that wrote it or on their
// strategy.
//
// Order of a save: begin_checkpoint (one rank), then write_checkpoint_part (every rank, after the
// first has begun), then commit_checkpoint (one rank, with every rank's part), then
// retain_checkpoints.

/// A file of a checkpoint and what it must be.
struct CheckpointPart {
  std::string file;  ///< "part-00000-of-00004.safetensors"
  FileDigest digest;
  std::vector<std::string> tensors;
};
/// For sending a part's description to the rank that commits.
Json to_json(const CheckpointPart& part);
CheckpointPart checkpoint_part_from_json(const Json& json, const std::string& where);

/// Everything of a checkpoint except its numbers. The free parts belong to who writes them.
struct CheckpointManifest {
  std::int64_t step = 0;  ///< optimizer steps done
  DecoderSpec decoder;
  StoredType type = StoredType::f32;  ///< of the tensors
  Json optimizer = Json::object();    ///< settings and their state
  Json data = Json::object();         ///< TrainingData::position()
  Json random = Json::object();       ///< states of random generators
  Json statistics = Json::object();   ///< losses and the like
  std::vector<CheckpointPart> parts;
};

/// ROOT/step-00000123 and ROOT/step-00000123.tmp.
std::filesystem::path checkpoint_path(const std::filesystem::path& root, std::int64_t step);
std::filesystem::path unfinished_checkpoint_path(const std::filesystem::path& root,
                                                 std::int64_t step);

/// Makes ROOT if need be and an empty unfinished checkpoint, replacing one that an interrupted run
/// left. Throws InputError.
void begin_checkpoint(const std::filesystem::path& root, std::int64_t step);

/// Writes this rank's file into the unfinished checkpoint; a rank without tensors writes an empty
/// one. Throws InputError.
template <typename T>
CheckpointPart write_checkpoint_part(const std::filesystem::path& root, std::int64_t step, int rank,
                                     int ranks, std::vector<StoredTensor> tensors,
                                     const TensorSource<T>& source);

/// Writes the manifest and gives the checkpoint its final name, which is durable when this returns.
/// A checkpoint of the same step is replaced. Throws InputError: a part is not there in the size
/// its writer said, a tensor is in two parts, a write fails.
void commit_checkpoint(const std::filesystem::path& root, const CheckpointManifest& manifest);

/// A checkpoint that stands under a final name, by rising step.
struct CheckpointEntry {
  std::int64_t step = 0;
  std::filesystem::path path;
};
/// Empty if ROOT does not exist.
std::vector<CheckpointEntry> list_checkpoints(const std::filesystem::path& root);

/// Reads a manifest, checking its own checksum. Throws InputError.
CheckpointManifest read_manifest(const std::filesystem::path& checkpoint);

/// Compares every file with its size and, if `thorough`, its checksum. Throws InputError naming the
/// first that differs.
CheckpointManifest verify_checkpoint(const std::filesystem::path& checkpoint, bool thorough = true);

/// The newest checkpoint that verifies; `notes` has a line for each newer one that does not.
struct NewestCheckpoint {
  std::optional<CheckpointEntry> checkpoint;
  std::vector<std::string> notes;
};
NewestCheckpoint newest_checkpoint(const std::filesystem::path& root);

/// Removes what interrupted saves and removals left behind. Only while nobody writes to ROOT.
/// Returns the names removed.
std::vector<std::string> clean_checkpoints(const std::filesystem::path& root);

/// Removes checkpoints older than the `keep` (≥ 1) newest whole ones, provided that one of those
/// verifies; damaged ones do not count, and go when they are older too. Returns the steps removed.
std::vector<std::int64_t> retain_checkpoints(const std::filesystem::path& root, int keep);

/// The tensors of a checkpoint.
class CheckpointTensors {
 public:
  /// Opens every part. Throws InputError: a part is missing or not as the manifest says.
  CheckpointTensors(const std::filesystem::path& checkpoint, const CheckpointManifest& manifest);
  /// Null if there is none of that name.
  const StoredTensor* find(const std::string& name) const;
  /// All of them, part by part.
  std::vector<StoredTensor> tensors() const;
  /// Elements from `first` on. InputError if there is no such tensor.
  template <typename T>
  void read(const std::string& name, std::int64_t first, std::span<T> values) const;

 private:
  struct Place {
    std::size_t file;
    std::int64_t tensor;
  };
  std::string name_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, Place> places_;
};

}  // namespace hydraulis
