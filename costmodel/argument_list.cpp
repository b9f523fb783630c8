#include "costmodel/argument_list.h"

#include <algorithm>
#include <map>
#include <utility>

namespace hydraulis {
namespace {

constexpr std::size_t kMostValue = 4096;  ///< characters of a variable

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name(char c) { return is_name_start(c) || (c >= '0' && c <= '9'); }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view leading_name(std::string_view text) {
  if (text.empty() || !is_name_start(text.front())) return {};
  return text.substr(0, static_cast<std::size_t>(
                            std::find_if_not(text.begin(), text.end(), is_name) - text.begin()));
}

/// Words of a script in order; an empty one ends a command.
struct Word {
  std::string text;
  int line = 0;
};

/// Splits as a shell does, but for quotes: what is quoted is split too, so that options in a quoted
/// variable are found.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

  std::vector<Word> split() {
    while (at_ < text_.size()) step();
    end_word();
    end_command();
    return std::move(words_);
  }

 private:
  char next() const { return at_ + 1 < text_.size() ? text_[at_ + 1] : '\0'; }

  void step() {
    const char c = text_[at_];
    if (c == '\\') {
      if (next() == '\n') {
        ++line_;
        end_word();
      } else if (next() == '\r' && at_ + 2 < text_.size() && text_[at_ + 2] == '\n') {
        ++line_;
        ++at_;
        end_word();
      } else if (next() != '\0') {
        word_ += next();
      }
      at_ += 2;
      return;
    }
    if (c == '#' && word_.empty() && quote_ == '\0') {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      return;
    }
    if (c == '$' && (next() == '(' || next() == '{')) return take_expansion();
    ++at_;
    if (c == '\n') {
      end_word();
      if (quote_ == '\0' && depth_ == 0) end_command();
      ++line_;
    } else if (is_blank(c)) {
      end_word();
    } else if (c == '"' || c == '\'') {
      if (quote_ == '\0') {
        quote_ = c;
      } else if (quote_ == c) {
        quote_ = '\0';
      } else {
        word_ += c;
      }
    } else if (quote_ == '\0' && (c == '(' || c == ')')) {
      depth_ = std::max(0, depth_ + (c == '(' ? 1 : -1));
      if (c == '(' && !word_.empty() && word_.back() == '=') word_.clear();
      end_word();
    } else if (quote_ == '\0' && (c == ';' || c == '&' || c == '|')) {
      end_word();
      end_command();
    } else {
      word_ += c;
    }
  }

  /// "${…}" and "$(…)" up to the bracket that closes them, as part of a word.
  void take_expansion() {
    const char open = next();
    const char close = open == '(' ? ')' : '}';
    int depth = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      word_ += c;
      if (c == '\n') ++line_;
      if (c == open) ++depth;
      if (c == close && --depth == 0) return;
    }
  }

  void end_word() {
    if (!word_.empty()) words_.push_back({std::exchange(word_, {}), line_});
  }
  void end_command() { words_.push_back({{}, line_}); }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  int depth_ = 0;
  char quote_ = '\0';
  std::string word_;
  std::vector<Word> words_;
};

class Variables {
 public:
  /// Whether the word sets a variable to something that is not an option.
  bool assign(const std::string& word) {
    const std::string_view name = leading_name(word);
    if (name.empty() || name.size() >= word.size() || word[name.size()] != '=') return false;
    const std::string value = word.substr(name.size() + 1);
    if (value.rfind("--", 0) == 0) return false;
    std::string whole = expand(value);
    // Lines that double a variable would fill the memory; one that is too long stays as written.
    if (whole.size() <= kMostValue) {
      values_[std::string(name)] = std::move(whole);
    } else {
      values_.erase(std::string(name));
    }
    return true;
  }

  std::string expand(const std::string& word) const {
    std::string result;
    for (std::size_t i = 0; i < word.size();) {
      if (word[i] != '$') {
        result += word[i++];
        continue;
      }
      const bool braced = i + 1 < word.size() && word[i + 1] == '{';
      const std::string_view rest = std::string_view(word).substr(i + (braced ? 2 : 1));
      const std::string_view name = leading_name(rest);
      std::size_t length = 1 + name.size();
      std::string_view fallback;
      if (braced) {
        const std::size_t end = rest.find('}');
        if (end == std::string_view::npos) return result + word.substr(i);
        const std::string_view more = rest.substr(name.size(), end - name.size());
        const bool has_fallback = more.rfind(":-", 0) == 0;
        length = end + 3;
        if (has_fallback) fallback = more.substr(2);
        if (!more.empty() && !has_fallback) {
          result += word.substr(i, length);
          i += length;
          continue;
        }
      }
      const auto found = values_.find(std::string(name));
      if (found != values_.end() && !name.empty()) {
        result += found->second;
      } else if (!fallback.empty()) {
        result += fallback;
      } else {
        result += word.substr(i, length);
      }
      i += length;
    }
    return result;
  }

 private:
  std::map<std::string, std::string> values_;
};

/// "NAME=--option" of a quoted variable is the option.
std::string without_assignment(const std::string& word) {
  const std::string_view name = leading_name(word);
  if (!name.empty() && word.compare(name.size(), 3, "=--") == 0)
    return word.substr(name.size() + 1);
  return word;
}

bool is_option(const std::string& word) {
  return word.size() > 2 && word.rfind("--", 0) == 0 && is_name_start(word[2]);
}

}  // namespace

std::vector<Argument> parse_argument_list(std::string_view text) {
  const std::vector<Word> words = Words(text).split();
  Variables variables;
  // Functions and loops may set variables further down, so all are read first.
  for (const Word& word : words) variables.assign(word.text);
  std::vector<Argument> arguments;
  bool open = false;
  for (const Word& word : words) {
    const std::string whole = without_assignment(word.text);
    if (whole.empty()) {
      open = false;
      continue;
    }
    if (!is_option(whole)) {
      if (open) arguments.back().values.push_back(variables.expand(whole));
      continue;
    }
    Argument argument;
    const std::size_t equals = whole.find('=');
    argument.name = whole.substr(2, equals == std::string::npos ? equals : equals - 2);
    std::replace(argument.name.begin(), argument.name.end(), '_', '-');
    if (equals != std::string::npos) {
      argument.values.push_back(variables.expand(whole.substr(equals + 1)));
    }
    argument.line = word.line;
    arguments.push_back(std::move(argument));
    open = true;
  }
  return arguments;
}

}  // namespace hydraulis
