// Networks of ASTRA-sim's analytical backends.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "costmodel/import_topology_text.h"

namespace hydraulis::detail {
namespace {

constexpr double kGiga = 1e9;
constexpr double kNano = 1e-9;

/// The lists of a YAML file of "key: [a, b]" and "key:" with "- a" below.
class YamlLists {
 public:
  YamlLists(std::string_view text, const std::string& where) : where_(where) {
    std::string key;
    for (const TopologyLine& line : lines_of(text)) {
      const std::string_view shown = line.text.substr(0, line.text.find('#'));
      const std::size_t first = shown.find_first_not_of(" \t\r");
      if (first == std::string_view::npos || shown.substr(first).rfind("---", 0) == 0) continue;
      const std::size_t colon = shown.find(':');
      if (shown[first] == '-') {
        if (key.empty()) refuse(line, "an entry of no list");
        add(key, shown.substr(first + 1), line);
      } else if (colon != std::string_view::npos) {
        key = shown.substr(first, shown.find_last_not_of(" \t", colon - 1) + 1 - first);
        if (!lists_.try_emplace(key, List{line.number, {}}).second) {
          refuse(line, fmt::format("'{}' stands twice", key));
        }
        add(key, shown.substr(colon + 1), line);
      } else {
        refuse(line, "expected 'key: [values]'");
      }
    }
  }

  const std::vector<std::string>& texts(const std::string& key) {
    const auto found = lists_.find(key);
    if (found == lists_.end()) throw InputError("{}: field '{}' is missing", where_, key);
    used_.insert(key);
    return found->second.values;
  }
  std::vector<double> numbers(const std::string& key, std::size_t count, double low) {
    const std::vector<std::string>& values = texts(key);
    if (values.size() != count) {
      throw InputError("{}: line {}, field '{}' has {} values, expected {} as 'topology' has",
                       where_, lists_.at(key).line, key, values.size(), count);
    }
    std::vector<double> result;
    for (const std::string& value : values) {
      const auto number = number_of(value);
      if (!number || *number < low) {
        throw InputError("{}: line {}, field '{}': '{}', expected a number from {:g}", where_,
                         lists_.at(key).line, key, value, low);
      }
      result.push_back(*number);
    }
    return result;
  }
  std::vector<std::string> unused() const {
    std::vector<std::string> keys;
    for (const auto& [key, list] : lists_) {
      if (!used_.contains(key)) keys.push_back(key);
    }
    return keys;
  }

 private:
  struct List {
    int line = 0;
    std::vector<std::string> values;
  };
  [[noreturn]] void refuse(const TopologyLine& line, const std::string& why) const {
    throw InputError("{}: line {}: {}", where_, line.number, why);
  }
  void add(const std::string& key, std::string_view text, const TopologyLine& line) {
    const auto opened = std::ranges::count(text, '[');
    if (opened != std::ranges::count(text, ']') || opened > 1) {
      refuse(line, "expected a list on one line");
    }
    for (std::string& word : words_of(text, " \t\r,[]\"'")) {
      lists_.at(key).values.push_back(std::move(word));
    }
  }

  std::string where_;
  std::map<std::string, List> lists_;
  std::set<std::string> used_;
};

/// Links of a dimension that one device can use at once.
double links_of(const std::string& kind, int size, const std::string& where) {
  if (kind == "Ring" || kind == "Switch") return 1;
  if (kind == "FullyConnected") return std::max(1, size - 1);
  throw InputError("{}: field 'topology': '{}', expected Ring, FullyConnected or Switch", where,
                   kind);
}

}  // namespace

ClusterSpec parse_astra_network(std::string_view text, const std::string& where) {
  constexpr double kLeastBandwidth = 1e-6;
  YamlLists file(text, where);
  const std::vector<std::string> kinds = file.texts("topology");
  if (kinds.empty()) throw InputError("{}: field 'topology' has no dimension", where);
  const std::vector<double> sizes = file.numbers("npus_count", kinds.size(), 1);
  const std::vector<double> speeds = file.numbers("bandwidth", kinds.size(), kLeastBandwidth);
  const std::vector<double> latencies = file.numbers("latency", kinds.size(), 0);
  ClusterSpec cluster;
  std::vector<LinkSpec> links;
  double devices = 1;
  for (std::size_t d = 0; d < kinds.size(); ++d) {
    devices *= sizes[d];
    if (sizes[d] != std::floor(sizes[d]) || devices > kMostOfNetwork) {
      throw InputError("{}: field 'npus_count': {:g}, expected whole numbers of at most {} in all",
                       where, sizes[d], kMostOfNetwork);
    }
    const double wires = links_of(kinds[d], static_cast<int>(sizes[d]), where);
    links.push_back({wires * speeds[d] * kGiga, latencies[d] * kNano});
    cluster.notes.push_back(fmt::format("dimension {}: {} of {:g}, {:g} GB/s and {:g} ns a link", d,
                                        kinds[d], sizes[d], speeds[d], latencies[d]));
  }
  cluster.devices_per_node = static_cast<int>(sizes[0]);
  cluster.nodes = static_cast<int>(devices / sizes[0]);
  cluster.intra_node = links[0];
  cluster.inter_node = links.size() > 1 ? links[1] : links[0];
  double below = 1;
  for (std::size_t d = 1; d + 1 < links.size(); ++d) {
    below *= sizes[d];
    const double ratio =
        links[d].bandwidth_bytes_per_second / links[d + 1].bandwidth_bytes_per_second;
    cluster.levels.push_back(
        {fmt::format("dimension {}", d), static_cast<int>(below), std::max(1.0, ratio),
         std::max(0.0, links[d + 1].latency_seconds - links[d].latency_seconds)});
  }
  for (const std::string& key : file.unused()) {
    cluster.notes.push_back(fmt::format("field '{}' of the file is left aside", key));
  }
  return cluster;
}

}  // namespace hydraulis::detail
