#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

namespace hydraulis {

/// Reads the whole text as a decimal number that fits T; signs, spaces and fractions are refused.
template <typename T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

/// The beginning of a text, fit for a message: at most 40 printable characters.
inline std::string excerpt(std::string_view text) {
  constexpr std::size_t kMost = 40;
  std::string shown(text.substr(0, kMost));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  }
  return text.size() > kMost ? shown + "…" : shown;
}

}  // namespace hydraulis
