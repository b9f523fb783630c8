#include "traces/tokenizer/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace hydraulis {
namespace {

struct Range {
  std::uint32_t first;
  std::uint32_t last;
};

#include "traces/tokenizer/unicode_ranges.inc"

template <std::size_t N>
constexpr bool contains(const Range (&ranges)[N], std::uint32_t code) {
  const Range* after =
      std::upper_bound(std::begin(ranges), std::end(ranges), code,
                       [](std::uint32_t value, const Range& range) { return value < range.first; });
  return after != std::begin(ranges) && code <= std::prev(after)->last;
}

constexpr CharacterClass search(std::uint32_t code) {
  if (contains(kLetters, code)) return CharacterClass::letter;
  if (contains(kNumbers, code)) return CharacterClass::number;
  if (contains(kSpaces, code)) return CharacterClass::space;
  return CharacterClass::other;
}

/// Nearly all text lies in the first planes' lowest part; its classes are looked up directly.
constexpr std::uint32_t kTableSize = 0x800;
const std::array<CharacterClass, kTableSize>& table() {
  static const std::array<CharacterClass, kTableSize> classes = [] {
    std::array<CharacterClass, kTableSize> result{};
    for (std::uint32_t code = 0; code < kTableSize; ++code) result[code] = search(code);
    return result;
  }();
  return classes;
}

CharacterClass classify(std::uint32_t code) {
  return code < kTableSize ? table()[code] : search(code);
}

}  // namespace

CodePoint decode(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const std::uint32_t lead = byte(0);
  CodePoint point;
  point.code = lead;
  if (lead < 0x80) {
    point.kind = classify(lead);
    return point;
  }
  const std::uint32_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() - at < bytes) return point;
  std::uint32_t code = lead & (0x7fu >> bytes);
  for (std::uint32_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return point;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  const bool too_long = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  if (too_long || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return point;
  point.code = code;
  point.bytes = bytes;
  point.kind = classify(code);
  return point;
}

std::string encode(std::uint32_t code) {
  std::string text;
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xc0 | code >> 6);
    text += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    text += static_cast<char>(0xe0 | code >> 12);
    text += static_cast<char>(0x80 | (code >> 6 & 0x3f));
    text += static_cast<char>(0x80 | (code & 0x3f));
  }
  return text;
}

}  // namespace hydraulis
