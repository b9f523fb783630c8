#include "costmodel/import_topology.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/atomic_file.h"
#include "costmodel/import_topology_text.h"

namespace hydraulis {
namespace detail {

std::vector<std::string> words_of(std::string_view line, std::string_view separators) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < line.size();) {
    begin = line.find_first_not_of(separators, begin);
    if (begin == std::string_view::npos) break;
    const std::size_t end = std::min(line.find_first_of(separators, begin), line.size());
    words.emplace_back(line.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

std::vector<TopologyLine> lines_of(std::string_view text) {
  std::vector<TopologyLine> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back({static_cast<int>(lines.size()) + 1, text.substr(begin, end - begin)});
    begin = end + 1;
  }
  return lines;
}

std::optional<double> number_of(std::string_view word) {
  double value = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::int64_t> whole_of(std::string_view word) {
  std::int64_t value = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc() || stop != end || value < 0 || value > kMostOfNetwork)
    return std::nullopt;
  return value;
}

}  // namespace detail

ClusterSpec parse_topology(std::string_view text, const std::string& where,
                           const DeviceSpec& device) {
  ClusterSpec cluster = detail::is_simai_topology(text) ? detail::parse_simai_topology(text, where)
                                                        : detail::parse_astra_network(text, where);
  cluster.name = std::filesystem::path(where).stem().string();
  cluster.device = device;
  cluster.origin = "imported from " + where;
  // The ranges of a cluster file hold here too.
  return parse_cluster(cluster_json(cluster), where);
}

ClusterSpec import_topology(const std::filesystem::path& path, const DeviceSpec& device) {
  return parse_topology(read_text_file(path), path.string(), device);
}

std::string topology_device(std::string_view text) {
  if (!detail::is_simai_topology(text)) return "";
  for (const detail::TopologyLine& line : detail::lines_of(text)) {
    const std::vector<std::string> words = detail::words_of(line.text);
    if (words.empty()) continue;
    std::string name = words.size() > 5 ? words[5] : "";
    std::ranges::transform(name, name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return name;
  }
  return "";
}

}  // namespace hydraulis
