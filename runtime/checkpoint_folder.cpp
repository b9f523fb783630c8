#include "runtime/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "base/error.h"
#include "runtime/crc32c.h"
#include "runtime/hugging_face.h"
#include "runtime/sync_folder.h"

namespace hydraulis {
namespace fs = std::filesystem;
namespace {

constexpr const char* kFormat = "hydraulis checkpoint";
constexpr int kVersion = 1;
constexpr const char* kManifest = "manifest.json";
constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kUnfinished = ".tmp";
/// A checkpoint about to give way to a new one of the same step. It still counts until then.
constexpr std::string_view kReplaced = ".replaced";
constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;

struct FolderName {
  std::int64_t step = 0;
  std::string_view ending;
};

std::optional<FolderName> parse_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  FolderName result;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), result.step);
  const auto digits = static_cast<std::size_t>(end - name.data());
  if (error != std::errc() || digits < 8 || result.step < 0) return std::nullopt;
  result.ending = name.substr(digits);
  return result;
}

std::string with_ending(const fs::path& path, std::string_view ending) {
  return path.string() + std::string(ending);
}

std::uint32_t checksum_of(const Json& manifest) {
  const std::string text = manifest.dump();
  return crc32c(std::as_bytes(std::span(text)));
}

Json manifest_json(const CheckpointManifest& manifest) {
  Json parts = Json::array();
  for (const CheckpointPart& part : manifest.parts) parts.push_back(to_json(part));
  Json json = {{"format", kFormat},
               {"version", kVersion},
               {"step", manifest.step},
               {"model_name", manifest.decoder.shape.name},
               {"model", decoder_config(manifest.decoder, manifest.type)},
               {"optimizer", manifest.optimizer},
               {"data", manifest.data},
               {"random", manifest.random},
               {"statistics", manifest.statistics},
               {"parts", std::move(parts)}};
  // The checksum is of what will be read: NaN has become null, for one.
  json = Json::parse(to_text(json));
  json["crc32c"] = checksum_of(json);
  return json;
}

/// Names of the folder's members; empty if there is no folder.
std::vector<std::string> names_in(const fs::path& root) {
  std::vector<std::string> names;
  std::error_code ec;
  fs::directory_iterator it(root, ec);
  if (ec) {
    if (ec == std::errc::no_such_file_or_directory) return names;
    throw InputError("{}: cannot list: {}", root.string(), ec.message());
  }
  for (const auto end = fs::directory_iterator(); it != end; it.increment(ec)) {
    names.push_back(it->path().filename().string());
    if (ec) throw InputError("{}: cannot list: {}", root.string(), ec.message());
  }
  std::ranges::sort(names);
  return names;
}

void remove_folder(const fs::path& path) {
  std::error_code ec;
  fs::remove_all(path, ec);
  if (ec) throw InputError("{}: cannot remove: {}", path.string(), ec.message());
}

/// Takes the final name away first, so that an interrupted removal leaves nothing that looks whole.
void remove_checkpoint(const fs::path& root, const CheckpointEntry& entry) {
  const fs::path unfinished = unfinished_checkpoint_path(root, entry.step);
  remove_folder(unfinished);
  rename_durably(entry.path, unfinished);
  remove_folder(unfinished);
}

void check_parts(const fs::path& folder, const std::vector<CheckpointPart>& parts, bool thorough) {
  for (const CheckpointPart& part : parts) {
    const fs::path path = folder / part.file;
    const FileDigest found =
        thorough ? digest_of(path) : FileDigest{InputFile(path).size(), part.digest.crc32c};
    if (found.bytes != part.digest.bytes) {
      throw InputError("{}: {} bytes, expected {}", path.string(), found.bytes, part.digest.bytes);
    }
    if (found.crc32c != part.digest.crc32c) {
      throw InputError("{}: checksum {:08x}, expected {:08x}", path.string(), found.crc32c,
                       part.digest.crc32c);
    }
  }
}

}  // namespace

Json to_json(const CheckpointPart& part) {
  return {{"file", part.file},
          {"bytes", part.digest.bytes},
          {"crc32c", part.digest.crc32c},
          {"tensors", part.tensors}};
}

CheckpointPart checkpoint_part_from_json(const Json& json, const std::string& where) {
  JsonFields fields(json, where, "parts");
  CheckpointPart part;
  part.file = fields.text("file");
  if (part.file.empty() || fs::path(part.file).filename() != part.file || part.file == "." ||
      part.file == "..") {
    throw InputError("{} is '{}', expected a file name", fields.name("file"), part.file);
  }
  part.digest.bytes = static_cast<std::uint64_t>(fields.integer("bytes", 0, INT64_MAX));
  part.digest.crc32c = static_cast<std::uint32_t>(fields.integer("crc32c", 0, UINT32_MAX));
  const Json& tensors = fields.at("tensors");
  if (!tensors.is_array()) throw InputError("{} is not a list", fields.name("tensors"));
  for (const Json& tensor : tensors) {
    if (!tensor.is_string()) throw InputError("{} is not a list of names", fields.name("tensors"));
    part.tensors.push_back(tensor.get<std::string>());
  }
  fields.finish();
  return part;
}

fs::path checkpoint_path(const fs::path& root, std::int64_t step) {
  return root / fmt::format("{}{:08}", kPrefix, step);
}

fs::path unfinished_checkpoint_path(const fs::path& root, std::int64_t step) {
  return with_ending(checkpoint_path(root, step), kUnfinished);
}

void begin_checkpoint(const fs::path& root, std::int64_t step) {
  const fs::path folder = unfinished_checkpoint_path(root, step);
  std::error_code ec;
  fs::create_directories(root, ec);
  if (ec) throw InputError("{}: cannot make the folder: {}", root.string(), ec.message());
  remove_folder(folder);
  fs::create_directory(folder, ec);
  if (ec) throw InputError("{}: cannot make the folder: {}", folder.string(), ec.message());
}

template <typename T>
CheckpointPart write_checkpoint_part(const fs::path& root, std::int64_t step, int rank, int ranks,
                                     std::vector<StoredTensor> tensors,
                                     const TensorSource<T>& source) {
  CheckpointPart part;
  part.file = fmt::format("part-{:05}-of-{:05}.safetensors", rank, ranks);
  for (const StoredTensor& tensor : tensors) part.tensors.push_back(tensor.name);
  part.digest = write_safetensors<T>(unfinished_checkpoint_path(root, step) / part.file,
                                     std::move(tensors), source);
  return part;
}
template CheckpointPart write_checkpoint_part(const fs::path&, std::int64_t, int, int,
                                              std::vector<StoredTensor>,
                                              const TensorSource<float>&);
template CheckpointPart write_checkpoint_part(const fs::path&, std::int64_t, int, int,
                                              std::vector<StoredTensor>,
                                              const TensorSource<double>&);

void commit_checkpoint(const fs::path& root, const CheckpointManifest& manifest) {
  const fs::path unfinished = unfinished_checkpoint_path(root, manifest.step);
  std::set<std::string> seen;
  for (const CheckpointPart& part : manifest.parts) {
    for (const std::string& tensor : part.tensors) {
      if (!seen.insert(tensor).second) {
        throw InputError("{}: tensor '{}' is in two parts", unfinished.string(), tensor);
      }
    }
  }
  check_parts(unfinished, manifest.parts, false);
  sync_folder(unfinished);  // the parts' names; their data was synced as they were written
  write_text_file(unfinished / kManifest, to_text(manifest_json(manifest)));
  sync_folder(unfinished);
  const fs::path target = checkpoint_path(root, manifest.step);
  const fs::path replaced = with_ending(target, kReplaced);
  std::error_code ec;
  if (fs::exists(target, ec)) {
    // Step aside, take over, remove: at every moment one of the two counts.
    remove_folder(replaced);
    rename_durably(target, replaced);
  }
  rename_durably(unfinished, target);
  remove_folder(replaced);
}

std::vector<CheckpointEntry> list_checkpoints(const fs::path& root) {
  std::map<std::int64_t, fs::path> found;
  for (const std::string& name : names_in(root)) {
    const auto parsed = parse_name(name);
    if (!parsed) continue;
    if (parsed->ending.empty()) found[parsed->step] = root / name;
    if (parsed->ending == kReplaced) found.emplace(parsed->step, root / name);
  }
  std::vector<CheckpointEntry> entries;
  for (const auto& [step, path] : found) entries.push_back({step, path});
  return entries;
}

CheckpointManifest read_manifest(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kManifest;
  const std::string where = path.string();
  Json json = read_json_file(path);
  JsonFields fields(json, where, "");
  if (fields.text("format") != kFormat) {
    throw InputError("{} is '{}', expected '{}'", fields.name("format"), fields.text("format"),
                     kFormat);
  }
  fields.integer("version", kVersion, kVersion);
  const auto expected = static_cast<std::uint32_t>(fields.integer("crc32c", 0, UINT32_MAX));
  CheckpointManifest manifest;
  manifest.step = fields.integer("step", 0, kMostSteps);
  const Json& model = fields.at("model");
  manifest.decoder = parse_decoder_config(model, where);
  manifest.decoder.shape.name = fields.text("model_name");
  manifest.type = parse_training_type(JsonFields(model, where, "model").text("dtype"));
  manifest.optimizer = fields.at("optimizer");
  manifest.data = fields.at("data");
  manifest.random = fields.at("random");
  manifest.statistics = fields.at("statistics");
  for (const Json& part : fields.at("parts")) {
    manifest.parts.push_back(checkpoint_part_from_json(part, where));
  }
  fields.finish();
  json.erase("crc32c");
  if (const std::uint32_t found = checksum_of(json); found != expected) {
    throw InputError("{}: checksum {:08x}, expected {:08x}", where, found, expected);
  }
  return manifest;
}

CheckpointManifest verify_checkpoint(const fs::path& checkpoint, bool thorough) {
  CheckpointManifest manifest = read_manifest(checkpoint);
  check_parts(checkpoint, manifest.parts, thorough);
  return manifest;
}

NewestCheckpoint newest_checkpoint(const fs::path& root) {
  NewestCheckpoint result;
  auto entries = list_checkpoints(root);
  std::ranges::reverse(entries);
  for (const CheckpointEntry& entry : entries) {
    try {
      verify_checkpoint(entry.path);
      result.checkpoint = entry;
      break;
    } catch (const InputError& error) {
      result.notes.push_back(fmt::format("checkpoint of step {} is damaged and left out: {}",
                                         entry.step, error.what()));
    }
  }
  return result;
}

std::vector<std::string> clean_checkpoints(const fs::path& root) {
  std::vector<std::string> removed;
  for (const std::string& name : names_in(root)) {
    const auto parsed = parse_name(name);
    if (!parsed) continue;
    std::error_code ec;
    const fs::path final_path = checkpoint_path(root, parsed->step);
    if (parsed->ending == kReplaced && !fs::exists(final_path, ec)) {
      rename_durably(root / name, final_path);  // its successor never came
    } else if (parsed->ending == kReplaced || parsed->ending == kUnfinished) {
      remove_folder(root / name);
      removed.push_back(name);
    }
  }
  return removed;
}

std::vector<std::int64_t> retain_checkpoints(const fs::path& root, int keep) {
  if (keep < 1) throw std::logic_error("at least one checkpoint is kept");
  auto entries = list_checkpoints(root);
  std::ranges::reverse(entries);
  std::size_t kept = 0;  // entries looked at until enough whole ones were found
  bool verified = false;
  for (int whole = 0; kept < entries.size() && (whole < keep || !verified); ++kept) {
    try {
      // One that verifies to the last bit is enough; the others are only looked at.
      verify_checkpoint(entries[kept].path, !verified);
      verified = true;
      ++whole;
    } catch (const InputError&) {
      continue;
    }
  }
  std::vector<std::int64_t> removed;
  for (std::size_t i = kept; i < entries.size(); ++i) {
    remove_checkpoint(root, entries[i]);
    removed.push_back(entries[i].step);
  }
  return removed;
}

CheckpointTensors::CheckpointTensors(const fs::path& checkpoint, const CheckpointManifest& manifest)
    : name_(checkpoint.string()) {
  for (const CheckpointPart& part : manifest.parts) {
    const SafetensorsFile& file = files_.emplace_back(checkpoint / part.file);
    if (file.tensors().size() != part.tensors.size()) {
      throw InputError("{}: {} tensors, expected {}", file.name(), file.tensors().size(),
                       part.tensors.size());
    }
    for (const std::string& tensor : part.tensors) {
      const std::int64_t index = file.find(tensor);
      if (index < 0) throw InputError("{}: tensor '{}' is missing", file.name(), tensor);
      if (!places_.emplace(tensor, Place{files_.size() - 1, index}).second) {
        throw InputError("{}: tensor '{}' is in two parts", name_, tensor);
      }
    }
  }
}

const StoredTensor* CheckpointTensors::find(const std::string& name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) return nullptr;
  return &files_[found->second.file].tensors()[static_cast<std::size_t>(found->second.tensor)];
}

std::vector<StoredTensor> CheckpointTensors::tensors() const {
  std::vector<StoredTensor> all;
  for (const SafetensorsFile& file : files_) {
    all.insert(all.end(), file.tensors().begin(), file.tensors().end());
  }
  return all;
}

template <typename T>
void CheckpointTensors::read(const std::string& name, std::int64_t first,
                             std::span<T> values) const {
  const auto found = places_.find(name);
  if (found == places_.end()) throw InputError("{}: tensor '{}' is missing", name_, name);
  files_[found->second.file].read<T>(found->second.tensor, first, values);
}
template void CheckpointTensors::read(const std::string&, std::int64_t, std::span<float>) const;
template void CheckpointTensors::read(const std::string&, std::int64_t, std::span<double>) const;

}  // namespace hydraulis
