#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace hydraulis {

/// Sequence lengths of a corpus, one per document, in corpus order.
struct LengthTrace {
  std::vector<std::uint32_t> lengths;  ///< tokens
  std::string source;                  ///< where the lengths come from, for people
  std::string tokenizer;  ///< "gpt2-bpe", "bytes", "estimate: 1.33 tokens per word", …
  std::uint64_t empty_documents = 0;  ///< documents of length 0 met and left out
  std::string origin;                 ///< how the lengths were made; may be empty
  std::string licence;                ///< under which terms they may be passed on; may be empty
  std::vector<std::string> warnings;  ///< what an import found odd; not stored
};

/// Loads a trace: one of known_traces() by name, the project's HDF5 store (.h5), or any format
/// `trace import` knows by its ending and that needs no tokenizer (.txt, .csv, .u32, .idx). With a
/// `format` (a name of file_formats()) `path` is a file, whatever its name. Throws InputError.
LengthTrace load_trace(const std::filesystem::path& path, const std::string& format = "");

/// Names of the formats of lengths that load_trace() reads.
std::vector<std::string> file_formats();

/// A trace that load_trace() knows by name.
struct KnownTrace {
  std::string name;
  std::string description;
};

/// The traces shipped with the project (token lengths of real files) and the synthetic presets
/// (200,000 documents, seed 0).
std::vector<KnownTrace> known_traces();

}  // namespace hydraulis
