#include "traces/length_trace.h"

#include <fmt/ranges.h>

#include <cstdlib>
#include <system_error>

#include "base/error.h"
#include "traces/import/import.h"
#include "traces/import/importer.h"
#include "traces/store.h"
#include "traces/synth.h"

namespace hydraulis {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kPresetDocuments = 200000;

struct ShippedTrace {
  const char* name;
  const char* file;
  const char* description;
};

constexpr ShippedTrace kShipped[] = {
    {"github-gpt2", "github_like.gpt2.h5", "real source files, GPT-2 tokens"},
    {"github-cl100k", "github_like.cl100k.h5", "real source files, cl100k tokens"},
    {"web-gpt2", "web_debian_docs.gpt2.h5", "real documentation pages, GPT-2 tokens"},
    {"web-cl100k", "web_debian_docs.cl100k.h5", "real documentation pages, cl100k tokens"},
};

fs::path shipped_path(const char* file) {
  const char* folder = std::getenv("HYDRAULIS_DATA");
  return fs::path(folder != nullptr && *folder != '\0' ? folder : HYDRAULIS_TRACE_DIR) / file;
}

constexpr const char* kStore = "h5";

/// The importer of a format, or of a file name's ending; nullptr if there is none.
const Importer* importer_of(const fs::path& path, const std::string& format) {
  const std::string name = path.filename().string();
  for (const auto& importer : registered_importers()) {
    if (!format.empty() && importer.name == format) return &importer;
    if (!format.empty()) continue;
    for (const auto& ending : importer.endings) {
      if (name.size() > ending.size() && name.ends_with(ending)) return &importer;
    }
  }
  return nullptr;
}

void require_file(const fs::path& path, const std::string& format) {
  std::error_code ec;
  if (fs::exists(path, ec)) return;
  if (!format.empty()) throw InputError("{}: no such file", path.string());
  std::string names;
  for (const auto& known : known_traces()) names += (names.empty() ? "" : ", ") + known.name;
  throw InputError("{}: no such file, and no trace of that name; known are {}", path.string(),
                   names);
}

}  // namespace

std::vector<KnownTrace> known_traces() {
  std::vector<KnownTrace> known;
  for (const auto& shipped : kShipped) known.push_back({shipped.name, shipped.description});
  for (const auto& preset : synth_presets()) {
    known.push_back({preset.name, "synthetic " + preset.description});
  }
  return known;
}

std::vector<std::string> file_formats() {
  std::vector<std::string> names = {kStore};
  for (const auto& importer : registered_importers()) {
    if (!importer.needs_tokenizer) names.push_back(importer.name);
  }
  return names;
}

LengthTrace load_trace(const fs::path& path, const std::string& format) {
  const std::string name = path.string();
  if (format.empty()) {
    for (const auto& shipped : kShipped) {
      if (name == shipped.name) return read_trace(shipped_path(shipped.file));
    }
    for (const auto& preset : synth_presets()) {
      if (name == preset.name) return synthesize_preset(name, kPresetDocuments, 0);
    }
  }
  require_file(path, format);
  const bool is_store =
      format.empty() ? path.extension() == ".h5" || path.extension() == ".hdf5" : format == kStore;
  if (is_store) return read_trace(path);
  const Importer* importer = importer_of(path, format);
  if (importer == nullptr) {
    throw format.empty()
        ? InputError(
              "{}: cannot tell the format from the name, expected a length trace (.h5) or .txt, "
              ".csv, .u32, .idx, or a format given by its name: {}",
              name, fmt::join(file_formats(), ", "))
        : InputError("format '{}' is not known, expected {}", format,
                     fmt::join(file_formats(), ", "));
  }
  if (importer->needs_tokenizer) {
    throw InputError("{}: holds text, not lengths: import it with a tokenizer first ({})", name,
                     "hydraulis trace import");
  }
  ImportOptions options;
  options.input = path;
  options.format = importer->name;
  return import_in_memory(options);
}

}  // namespace hydraulis
