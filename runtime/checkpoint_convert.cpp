#include "runtime/checkpoint_convert.h"

#include <unordered_map>

#include "base/error.h"

namespace hydraulis {
namespace fs = std::filesystem;

CheckpointEntry find_checkpoint(const fs::path& path, std::vector<std::string>& notes) {
  std::error_code ec;
  if (!fs::is_directory(path, ec)) {
    throw InputError("{}: no such folder, expected a checkpoint or a folder of checkpoints",
                     path.string());
  }
  if (fs::exists(path / "manifest.json", ec)) return {read_manifest(path).step, path};
  NewestCheckpoint newest = newest_checkpoint(path);
  if (!newest.checkpoint) {
    throw InputError("{}: holds no whole checkpoint{}{}", path.string(),
                     newest.notes.empty() ? "" : "; ",
                     newest.notes.empty() ? "" : newest.notes.front());
  }
  notes.insert(notes.end(), newest.notes.begin(), newest.notes.end());
  return *newest.checkpoint;
}

CheckpointEntry import_hugging_face(const HuggingFaceModel& model, const fs::path& root,
                                    StoredType type) {
  if (const auto entries = list_checkpoints(root); !entries.empty()) {
    throw InputError("{}: holds a checkpoint of step {} already, expected a folder without",
                     root.string(), entries.back().step);
  }
  std::vector<StoredTensor> tensors;
  std::unordered_map<std::string, std::size_t> index;
  for (const LogicalTensor& tensor : model.tensors()) {
    index.emplace(tensor.name, tensors.size());
    tensors.push_back({tensor.name, type, tensor.shape});
  }
  CheckpointManifest manifest;
  manifest.decoder = model.decoder();
  manifest.type = type;
  begin_checkpoint(root, manifest.step);
  manifest.parts = {write_checkpoint_part<double>(
      root, manifest.step, 0, 1, std::move(tensors),
      [&](const StoredTensor& tensor, std::int64_t first, std::span<double> values) {
        model.read<double>(index.at(tensor.name), first, values);
      })};
  commit_checkpoint(root, manifest);
  return {manifest.step, checkpoint_path(root, manifest.step)};
}

void export_checkpoint(const fs::path& checkpoint, const fs::path& folder,
                       const ExportOptions& options) {
  const CheckpointManifest manifest = verify_checkpoint(checkpoint);
  const CheckpointTensors tensors(checkpoint, manifest);
  for (const LogicalTensor& tensor : logical_tensors(manifest.decoder.shape)) {
    const StoredTensor* found = tensors.find(tensor.name);
    if (found == nullptr || found->shape != tensor.shape) {
      throw InputError("{}: tensor '{}' {}", checkpoint.string(), tensor.name,
                       found == nullptr ? "is missing" : "has another shape than its model");
    }
  }
  export_hugging_face(
      folder, manifest.decoder, options,
      [&](const LogicalTensor& tensor, std::int64_t first, std::span<double> values) {
        tensors.read<double>(tensor.name, first, values);
      });
}

}  // namespace hydraulis
