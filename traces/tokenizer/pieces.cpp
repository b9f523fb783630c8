#include "traces/tokenizer/bpe.h"
#include "traces/tokenizer/unicode.h"

namespace hydraulis {
namespace {

/// Length of a contraction at the beginning of the text, 0 if there is none.
std::size_t contraction(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const char c = text[1];
  if (c == 's' || c == 't' || c == 'm' || c == 'd') return 2;
  const std::string_view two = text.substr(1, 2);
  return two == "re" || two == "ve" || two == "ll" ? 3 : 0;
}

/// End of the run of characters of one class that begins at `at`.
std::size_t end_of_run(std::string_view text, std::size_t at, CharacterClass kind) {
  while (at < text.size()) {
    const CodePoint point = decode(text, at);
    if (point.kind != kind) break;
    at += point.bytes;
  }
  return at;
}

}  // namespace

std::size_t next_piece(std::string_view text) {
  if (const std::size_t length = contraction(text)) return length;
  const CodePoint first = decode(text, 0);
  if (first.kind != CharacterClass::space) return end_of_run(text, 0, first.kind);
  if (first.code == ' ' && text.size() > 1) {
    const CodePoint second = decode(text, 1);
    if (second.kind != CharacterClass::space) return end_of_run(text, 1, second.kind);
  }
  // White space up to the last character before something else, or all of it at the text's end.
  std::size_t last = 0;
  std::size_t end = 0;
  while (end < text.size()) {
    const CodePoint point = decode(text, end);
    if (point.kind != CharacterClass::space) break;
    last = end;
    end += point.bytes;
  }
  return end == text.size() || last == 0 ? end : last;
}

}  // namespace hydraulis
