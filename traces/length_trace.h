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
};

/// Loads a trace from the project's HDF5 store, or from any format `trace import` knows by its
/// ending (.txt, .csv, .u32, .idx). Throws InputError.
LengthTrace load_trace(const std::filesystem::path& path);

}  // namespace hydraulis
