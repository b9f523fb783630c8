#include "planner/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kMostPipelines = 1 << 16;
constexpr std::int64_t kMostDevices = 1 << 20;
constexpr std::size_t kMostStrategies = 1 << 12;
/// Over all strategies of one text, so that a short text cannot ask for much memory.
constexpr std::int64_t kMostPipelinesInAll = 1 << 20;

/// Reads strategies from left to right; every complaint says where it stands.
class Parser {
 public:
  Parser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  std::vector<Strategy> strategies() {
    std::vector<Strategy> result;
    for (;;) {
      if (result.size() == kMostStrategies) {
        refuse(at_, fmt::format("more than {} strategies", kMostStrategies));
      }
      result.push_back(strategy());
      if (at_ == text_.size()) return result;
      ++at_;  // the ';' that ended the strategy
    }
  }

 private:
  [[noreturn]] void refuse(std::size_t position, const std::string& reason) const {
    throw InputError(
        "{}: strategy text '{}', character {}: {}; expected pipelines joined by '+' and strategies "
        "separated by ';', such as \"4x(1,16,1); (1,16,1)+6x(1,8,1)\"",
        where_, shown(), position + 1, reason);
  }

  /// The text as messages show it: one line of bounded length.
  std::string shown() const {
    constexpr std::size_t kMost = 200;
    std::string text(text_.substr(0, kMost));
    std::replace_if(
        text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
    return text_.size() > kMost ? text + "..." : text;
  }

  void skip_blanks() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
  }

  bool next_is(char c) const { return at_ < text_.size() && text_[at_] == c; }

  Strategy strategy() {
    Strategy result;
    std::int64_t devices_in_all = 0;
    for (;;) {
      skip_blanks();
      const std::size_t begin = at_;
      const std::int64_t copies = count();
      const Scheme one = scheme();
      devices_in_all += copies * one.devices();
      if (devices_in_all > kMostDevices) {
        refuse(begin, fmt::format("the strategy needs more than {} devices", kMostDevices));
      }
      pipelines_ += copies;
      if (static_cast<std::int64_t>(result.size()) + copies > kMostPipelines ||
          pipelines_ > kMostPipelinesInAll) {
        refuse(begin, fmt::format("more than {} pipelines in a strategy or {} in all",
                                  kMostPipelines, kMostPipelinesInAll));
      }
      result.insert(result.end(), static_cast<std::size_t>(copies), one);
      skip_blanks();
      if (at_ == text_.size() || next_is(';')) return result;
      if (!next_is('+')) refuse(at_, "expected '+', ';' or the end here");
      ++at_;
    }
  }

  /// The "4x" before a scheme, or 1.
  std::int64_t count() {
    if (at_ == text_.size() || text_[at_] < '0' || text_[at_] > '9') return 1;
    std::int64_t value = 0;
    const char* end = text_.data() + text_.size();
    const auto [stop, status] = std::from_chars(text_.data() + at_, end, value);
    if (status != std::errc() || value < 1 || value > kMostPipelines) {
      refuse(at_, fmt::format("expected a number of pipelines from 1 to {}", kMostPipelines));
    }
    at_ = static_cast<std::size_t>(stop - text_.data());
    skip_blanks();
    if (!next_is('x') && !next_is('X') && !next_is('*')) {
      refuse(at_, "expected 'x' after a number of pipelines");
    }
    ++at_;
    skip_blanks();
    return value;
  }

  Scheme scheme() {
    if (!next_is('(')) refuse(at_, "expected a scheme (cp,tp,pp) here");
    const std::size_t close = text_.find(')', at_);
    if (close == std::string_view::npos) refuse(at_, "this parenthesis is never closed");
    const std::string_view text = text_.substr(at_, close + 1 - at_);
    const Scheme result = parse_scheme(text, fmt::format("{}, character {}", where_, at_ + 1));
    at_ = close + 1;
    return result;
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::int64_t pipelines_ = 0;
};

}  // namespace

std::string to_string(const Strategy& strategy) {
  std::string text;
  for (auto first = strategy.begin(); first != strategy.end();) {
    const auto last =
        std::find_if(first, strategy.end(), [&](const Scheme& scheme) { return scheme != *first; });
    if (!text.empty()) text += '+';
    if (last - first > 1) text += fmt::format("{}x", last - first);
    text += to_string(*first);
    first = last;
  }
  return text;
}

std::vector<Strategy> parse_strategies(std::string_view text, const std::string& where) {
  return Parser(text, where).strategies();
}

int devices(const Strategy& strategy) {
  int sum = 0;
  for (const Scheme& scheme : strategy) sum += scheme.devices();
  return sum;
}

bool is_homogeneous(const Strategy& strategy) {
  return std::all_of(strategy.begin(), strategy.end(),
                     [&](const Scheme& scheme) { return scheme == strategy.front(); });
}

}  // namespace hydraulis
