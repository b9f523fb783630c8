#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/cluster_spec.h"

namespace hydraulis::detail {

/// Most devices, switches and links of an imported network.
inline constexpr std::int64_t kMostOfNetwork = 1 << 24;

struct TopologyLine {
  int number = 0;
  std::string_view text;
};
std::vector<TopologyLine> lines_of(std::string_view text);
std::vector<std::string> words_of(std::string_view line, std::string_view separators = " \t\r");
/// A finite number that is the whole word.
std::optional<double> number_of(std::string_view word);
/// A whole number from 0 to kMostOfNetwork.
std::optional<std::int64_t> whole_of(std::string_view word);

/// The formats of import_topology(): nodes and links of a cluster without its device.
ClusterSpec parse_astra_network(std::string_view text, const std::string& where);
ClusterSpec parse_simai_topology(std::string_view text, const std::string& where);
bool is_simai_topology(std::string_view text);

}  // namespace hydraulis::detail
