#include "costmodel/scheme.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr int kMostDegree = 1 << 20;
constexpr int kMostStages = 1 << 14;

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find(separator, begin);
    parts.push_back(trimmed(text.substr(begin, end - begin)));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

/// What a parser complains about: the place and the whole text.
struct Source {
  std::string_view text;
  const std::string& where;

  [[noreturn]] void refuse(const std::string& reason) const {
    throw InputError(
        "{}: scheme '{}': {}; expected (cp,tp,pp) such as (1,16,1) or "
        "(1,4,2,recompute=full,layers=15+17,group=1)",
        where, text, reason);
  }

  int positive(std::string_view digits, const char* what) const {
    int value = 0;
    const char* end = digits.data() + digits.size();
    const auto [at, status] = std::from_chars(digits.data(), end, value);
    if (digits.empty() || status != std::errc() || at != end || value < 1 || value > kMostDegree) {
      refuse(
          fmt::format("{} is '{}', expected an integer from 1 to {}", what, digits, kMostDegree));
    }
    return value;
  }
};

Recompute parse_recompute(std::string_view value, const Source& source) {
  if (value == "none") return Recompute::none;
  if (value == "selective") return Recompute::selective;
  if (value == "full") return Recompute::full;
  source.refuse(fmt::format("recompute is '{}', expected none, selective or full", value));
}

}  // namespace

std::string to_string(const Scheme& scheme) {
  std::string text = fmt::format("({},{},{}", scheme.cp, scheme.tp, scheme.pp);
  if (scheme.recompute == Recompute::selective) text += ",recompute=selective";
  if (scheme.recompute == Recompute::full) text += ",recompute=full";
  if (!scheme.layers.empty()) text += fmt::format(",layers={}", fmt::join(scheme.layers, "+"));
  if (scheme.group != 0) text += fmt::format(",group={}", scheme.group);
  return text + ")";
}

Scheme parse_scheme(std::string_view text, const std::string& where) {
  text = trimmed(text);
  const Source source{text, where};
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') {
    source.refuse("it is not in parentheses");
  }
  const auto parts = split(text.substr(1, text.size() - 2), ',');
  if (parts.size() < 3) source.refuse("it has fewer than three numbers");
  Scheme scheme;
  scheme.cp = source.positive(parts[0], "cp");
  scheme.tp = source.positive(parts[1], "tp");
  scheme.pp = source.positive(parts[2], "pp");
  if (scheme.pp > kMostStages) source.refuse(fmt::format("pp is more than {}", kMostStages));
  const std::int64_t devices = std::int64_t{scheme.cp} * scheme.tp;
  if (devices > kMostDegree || devices * scheme.pp > kMostDegree) {
    source.refuse(fmt::format("it asks for more than {} devices", kMostDegree));
  }
  bool seen_recompute = false;
  bool seen_group = false;
  for (std::size_t i = 3; i < parts.size(); ++i) {
    const auto equals = parts[i].find('=');
    const auto key = trimmed(parts[i].substr(0, equals));
    const auto value = equals == std::string_view::npos ? std::string_view()
                                                        : trimmed(parts[i].substr(equals + 1));
    if (key == "recompute" && !seen_recompute) {
      scheme.recompute = parse_recompute(value, source);
      seen_recompute = true;
    } else if (key == "layers" && scheme.layers.empty()) {
      for (const auto count : split(value, '+')) {
        scheme.layers.push_back(source.positive(count, "a stage's number of layers"));
      }
      if (scheme.layers.size() != static_cast<std::size_t>(scheme.pp)) {
        source.refuse(
            fmt::format("layers lists {} stages but pp is {}", scheme.layers.size(), scheme.pp));
      }
    } else if (key == "group" && !seen_group) {
      scheme.group = value == "0" ? 0 : source.positive(value, "group");
      seen_group = true;
    } else {
      source.refuse(fmt::format("'{}' is not known here or given twice", parts[i]));
    }
  }
  return scheme;
}

std::vector<int> stage_layers(const Scheme& scheme, int layers) {
  if (!scheme.layers.empty()) {
    if (scheme.layers.size() != static_cast<std::size_t>(scheme.pp)) {
      throw InputError("scheme {}: lists layers for {} stages but has {}", to_string(scheme),
                       scheme.layers.size(), scheme.pp);
    }
    const auto total = std::accumulate(scheme.layers.begin(), scheme.layers.end(), std::int64_t{0});
    const int fewest = *std::min_element(scheme.layers.begin(), scheme.layers.end());
    if (fewest < 1 || total != layers) {
      throw InputError(
          "scheme {}: its stages hold {} layers (fewest {}), expected {} in all and "
          "at least 1 each",
          to_string(scheme), total, fewest, layers);
    }
    return scheme.layers;
  }
  if (scheme.pp < 1 || layers < scheme.pp) {
    throw InputError("scheme {}: {} layers cannot fill {} stages", to_string(scheme), layers,
                     scheme.pp);
  }
  std::vector<int> result(static_cast<std::size_t>(scheme.pp), layers / scheme.pp);
  for (int i = 0; i < layers % scheme.pp; ++i) ++result[static_cast<std::size_t>(i)];
  return result;
}

}  // namespace hydraulis
