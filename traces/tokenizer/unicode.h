#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hydraulis {

enum class CharacterClass : std::uint8_t { letter, number, space, other };

struct CodePoint {
  std::uint32_t code = 0;
  std::uint32_t bytes = 1;  ///< in the text
  CharacterClass kind = CharacterClass::other;
};

/// The character at `at`, which must be inside the text. A byte that does not begin valid UTF-8 is
/// a character of class `other` by itself.
CodePoint decode(std::string_view text, std::size_t at);

/// UTF-8 of a code point up to U+FFFF.
std::string encode(std::uint32_t code);

}  // namespace hydraulis
