#include "runtime/hugging_face.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "runtime/sync_folder.h"

namespace hydraulis {
namespace fs = std::filesystem;
namespace {

constexpr const char* kHead = "lm_head.weight";

/// Old checkpoints store the rotary frequencies of every layer; they follow from the configuration.
bool follows_from_config(const std::string& tensor) {
  return tensor.ends_with("rotary_emb.inv_freq");
}

StoredTensor stored(const LogicalTensor& tensor, StoredType type) {
  return {tensor.name, type, tensor.shape};
}

/// Cuts the tensors, in their order, into files of at most `limit` bytes.
std::vector<std::vector<const LogicalTensor*>> make_shards(
    const std::vector<LogicalTensor>& tensors, StoredType type, std::uint64_t limit) {
  std::vector<std::vector<const LogicalTensor*>> shards(1);
  std::uint64_t held = 0;
  for (const LogicalTensor& tensor : tensors) {
    const auto bytes = static_cast<std::uint64_t>(tensor.elements() * size_of(type));
    if (!shards.back().empty() && held + bytes > limit) {
      shards.emplace_back();
      held = 0;
    }
    shards.back().push_back(&tensor);
    held += bytes;
  }
  return shards;
}

void write_weights(const fs::path& folder, const std::vector<LogicalTensor>& tensors,
                   const ExportOptions& options, const LogicalSource& source) {
  const auto shards = make_shards(tensors, options.type, options.shard_bytes);
  std::map<std::string, std::string> file_of;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string file =
        shards.size() == 1 ? "model.safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    std::vector<StoredTensor> held;
    std::map<std::string, const LogicalTensor*> by_name;
    for (const LogicalTensor* tensor : shards[i]) {
      held.push_back(stored(*tensor, options.type));
      by_name[tensor->name] = tensor;
      file_of[tensor->name] = file;
      total += tensor->elements() * size_of(options.type);
    }
    write_safetensors<double>(
        folder / file, std::move(held),
        [&](const StoredTensor& tensor, std::int64_t first, std::span<double> values) {
          source(*by_name.at(tensor.name), first, values);
        });
  }
  if (shards.size() == 1) return;
  Json map = Json::object();
  for (const auto& [tensor, file] : file_of) map[tensor] = file;
  write_text_file(folder / "model.safetensors.index.json",
                  to_text({{"metadata", {{"total_size", total}}}, {"weight_map", map}}));
}

}  // namespace

HuggingFaceModel::HuggingFaceModel(const fs::path& folder)
    : decoder_(load_decoder((folder / "config.json").string())),
      folder_(folder),
      tensors_(logical_tensors(decoder_.shape)) {
  std::map<std::string, SafetensorsFolder::Place> left = folder_.tensors();
  for (const LogicalTensor& tensor : tensors_) {
    const auto found = left.find(tensor.name);
    if (found == left.end()) {
      throw InputError("{}: tensor '{}' is missing{}", folder.string(), tensor.name,
                       tensor.name == kHead
                           ? "; if the head is the embedding, config.json must say "
                             "\"tie_word_embeddings\": true"
                           : "");
    }
    const SafetensorsFile& file = folder_.files()[found->second.file];
    const StoredTensor& there = file.tensors()[static_cast<std::size_t>(found->second.tensor)];
    if (there.shape != tensor.shape) {
      throw InputError("{}: tensor '{}' has shape [{}], expected [{}] by config.json", file.name(),
                       tensor.name, fmt::join(there.shape, ", "), fmt::join(tensor.shape, ", "));
    }
    if (!is_trainable(there.type)) {
      throw InputError("{}: tensor '{}' is stored as {}, expected F64, F32, F16 or BF16",
                       file.name(), tensor.name, to_string(there.type));
    }
    places_.push_back(found->second);
    left.erase(found);
  }
  if (decoder_.shape.tied_embeddings && left.contains(kHead)) {
    check_tied_head();
    left.erase(kHead);
  }
  for (const auto& [name, place] : left) {
    if (follows_from_config(name)) continue;
    throw InputError("{}: tensor '{}' is not part of the model that config.json describes",
                     folder_.files()[place.file].name(), name);
  }
}

/// A tied model may store its head as well, as long as it is the embedding.
void HuggingFaceModel::check_tied_head() {
  const SafetensorsFolder::Place place = folder_.tensors().at(kHead);
  const SafetensorsFile& file = folder_.files()[place.file];
  const StoredTensor& head = file.tensors()[static_cast<std::size_t>(place.tensor)];
  const auto embedding = std::ranges::find(tensors_, TensorKind::embedding, &LogicalTensor::kind);
  const auto index = static_cast<std::size_t>(embedding - tensors_.begin());
  bool same = head.shape == embedding->shape && is_trainable(head.type);
  constexpr std::int64_t kBlock = 1 << 16;
  std::vector<double> a;
  std::vector<double> b;
  for (std::int64_t first = 0; same && first < embedding->elements(); first += kBlock) {
    const auto count = static_cast<std::size_t>(std::min(kBlock, embedding->elements() - first));
    a.resize(count);
    b.resize(count);
    read<double>(index, first, a);
    file.read<double>(place.tensor, first, b);
    same = a == b;
  }
  if (!same) {
    warnings_.push_back(
        fmt::format("{}: 'lm_head.weight' differs from the embedding, although config.json says "
                    "that they are one; the embedding is used",
                    file.name()));
  }
}

StoredType HuggingFaceModel::type(std::size_t index) const {
  const SafetensorsFolder::Place place = places_.at(index);
  return folder_.files()[place.file].tensors()[static_cast<std::size_t>(place.tensor)].type;
}

template <typename T>
void HuggingFaceModel::read(std::size_t index, std::int64_t first, std::span<T> values) const {
  const SafetensorsFolder::Place place = places_.at(index);
  folder_.files()[place.file].read<T>(place.tensor, first, values);
}
template void HuggingFaceModel::read(std::size_t, std::int64_t, std::span<float>) const;
template void HuggingFaceModel::read(std::size_t, std::int64_t, std::span<double>) const;

void export_hugging_face(const fs::path& folder, const DecoderSpec& decoder,
                         const ExportOptions& options, const LogicalSource& source) {
  NewFolder target(folder);
  write_weights(target.temporary(), logical_tensors(decoder.shape), options, source);
  write_text_file(target.temporary() / "config.json",
                  to_text(decoder_config(decoder, options.type)));
  target.commit();
}

}  // namespace hydraulis
