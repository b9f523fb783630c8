#include "runtime/dataset.h"

#include "base/error.h"

namespace hydraulis {
namespace {

/// The name without the ending of a compressed file.
std::string plain_name(const std::string& path) {
  const std::filesystem::path name(path);
  const bool compressed = name.extension() == ".gz" || name.extension() == ".zst";
  return compressed ? std::filesystem::path(name).replace_extension().string() : path;
}

}  // namespace

std::unique_ptr<Dataset> open_dataset(const DatasetSource& source) {
  const std::string name = plain_name(source.path);
  const std::string ending = std::filesystem::path(name).extension().string();
  if (ending == ".idx" || ending == ".bin") {
    if (!source.tokenizer.empty() || source.end_token || !source.prompt_field.empty()) {
      throw InputError(
          "{}: holds tokens already: a tokenizer, an end token or a prompt field are for texts",
          source.path);
    }
    return detail::open_megatron(source);
  }
  if (ending == ".jsonl" || ending == ".txt") {
    return detail::open_text(source, ending == ".jsonl");
  }
  throw InputError(
      "{}: no known data set, expected .idx or .bin (Megatron), .jsonl or .txt (with .gz or .zst)",
      source.path);
}

}  // namespace hydraulis
