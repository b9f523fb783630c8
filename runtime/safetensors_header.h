#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/safetensors.h"

namespace hydraulis::detail {

struct HeaderEntry {
  StoredTensor tensor;
  std::uint64_t begin = 0;  ///< bytes from the start of the data
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<HeaderEntry> entries;  ///< by begin
  std::map<std::string, std::string> metadata;
};

/// Parses and checks a header's JSON text against the data's size in bytes. Memory is proportional
/// to the text, whatever it claims. Throws InputError; `where` names the file.
SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_bytes,
                                           const std::string& where);

/// Tensor and file of every entry of an index's weight_map, in the file's order.
std::vector<std::pair<std::string, std::string>> parse_safetensors_index(std::string_view text,
                                                                         const std::string& where);

}  // namespace hydraulis::detail
