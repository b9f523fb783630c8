// Topologies of SimAI.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "costmodel/import_topology_text.h"

namespace hydraulis::detail {
namespace {

constexpr double kGiga = 1e9;
constexpr double kNano = 1e-9;

/// A number with one of these units, in the unit's base.
std::optional<double> with_unit(const std::string& word,
                                const std::vector<std::pair<std::string, double>>& units) {
  for (const auto& [unit, factor] : units) {
    if (word.size() <= unit.size() || !word.ends_with(unit)) continue;
    const auto value = number_of(std::string_view(word).substr(0, word.size() - unit.size()));
    if (value && *value >= 0) return *value * factor;
  }
  return std::nullopt;
}

const std::vector<std::pair<std::string, double>> kSpeeds = {
    {"Gbps", kGiga / 8}, {"Mbps", 1e6 / 8}, {"Tbps", 1e12 / 8}, {"GBps", kGiga}, {"bps", 1.0 / 8}};
const std::vector<std::pair<std::string, double>> kTimes = {
    {"ms", 1e-3}, {"us", 1e-6}, {"ns", kNano}, {"s", 1}};

class SimAiFile {
 public:
  SimAiFile(std::string_view text, std::string where)
      : lines_(lines_of(text)), where_(std::move(where)) {
    std::erase_if(lines_, [](const TopologyLine& line) { return words_of(line.text).empty(); });
  }

  ClusterSpec read() {
    header();
    for (std::size_t i = 2; i < lines_.size(); ++i) link(lines_[i]);
    ClusterSpec cluster;
    cluster.devices_per_node = static_cast<int>(per_server_);
    cluster.nodes = static_cast<int>(gpus_ / per_server_);
    cluster.intra_node = device_link(inside_, "switches inside servers", cluster);
    if (cluster.nodes > 1) {
      cluster.inter_node = device_link(outside_, "switches between servers", cluster);
    } else {
      cluster.inter_node = cluster.intra_node;
    }
    level(cluster);
    return cluster;
  }

 private:
  struct Wires {
    double speed = 0;
    double latency = 0;
  };

  [[noreturn]] void refuse(const TopologyLine& line, const std::string& why) const {
    throw InputError("{}: line {}: {}", where_, line.number, why);
  }

  void header() {
    if (lines_.size() < 2) {
      throw InputError("{}: expected a line of sizes and one of switch numbers", where_);
    }
    const std::vector<std::string> words = words_of(lines_[0].text);
    std::vector<std::int64_t> sizes;
    for (std::size_t i = 0; i < 5 && i < words.size(); ++i) {
      if (const auto value = whole_of(words[i])) sizes.push_back(*value);
    }
    if (sizes.size() != 5) {
      refuse(lines_[0],
             "expected 'nodes gpus_per_server nvswitches switches links gpu_type' in numbers");
    }
    per_server_ = sizes[1];
    const std::int64_t inner = sizes[2];
    const std::int64_t switches = inner + sizes[3];
    links_ = sizes[4];
    gpus_ = sizes[0] - switches;
    if (gpus_ < 1 || per_server_ < 1 || gpus_ % per_server_ != 0) {
      refuse(
          lines_[0],
          fmt::format("{} nodes less {} switches are {} GPUs, expected a multiple of {} a server",
                      sizes[0], switches, gpus_, per_server_));
    }
    found_links_ = static_cast<std::int64_t>(lines_.size()) - 2;
    if (found_links_ != links_ || gpus_ > links_) {
      refuse(lines_[0], fmt::format("{} links claimed for {} GPUs, the file has {}", links_, gpus_,
                                    found_links_));
    }
    const std::vector<std::string> ids = words_of(lines_[1].text);
    if (ids.size() != static_cast<std::size_t>(switches)) {
      refuse(lines_[1], fmt::format("{} switches, expected {}", ids.size(), switches));
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::int64_t id = whole_of(ids[i]).value_or(-1);
      if (id < 0 || id >= sizes[0] ||
          !kinds_.try_emplace(id, i < static_cast<std::size_t>(inner)).second) {
        refuse(lines_[1], fmt::format("'{}', expected the number of another switch", ids[i]));
      }
    }
    nodes_ = sizes[0];
    inside_.resize(static_cast<std::size_t>(gpus_));
    outside_.resize(static_cast<std::size_t>(gpus_));
    for (std::int64_t id = 0, next = 0; id < nodes_; ++id) {
      if (!kinds_.contains(id)) gpu_numbers_[id] = next++;
    }
  }

  void link(const TopologyLine& line) {
    const std::vector<std::string> words = words_of(line.text);
    if (words.size() < 4)
      refuse(line, "expected 'source destination bandwidth latency error_rate'");
    std::int64_t from = whole_of(words[0]).value_or(-1);
    std::int64_t to = whole_of(words[1]).value_or(-1);
    if (from < 0 || to < 0 || from >= nodes_ || to >= nodes_ || from == to) {
      refuse(line, fmt::format("a link from {} to {}, expected two of {} nodes", words[0], words[1],
                               nodes_));
    }
    const double speed = with_unit(words[2], kSpeeds).value_or(0);
    const double latency = with_unit(words[3], kTimes).value_or(-1);
    if (!(speed > 0)) {
      refuse(line, fmt::format("bandwidth '{}', expected one such as 100Gbps", words[2]));
    }
    if (latency < 0)
      refuse(line, fmt::format("latency '{}', expected one such as 0.5us", words[3]));
    if (kinds_.contains(from)) std::swap(from, to);
    const auto other = kinds_.find(to);
    if (kinds_.contains(from)) {
      up_[from] += speed;
      up_[to] += speed;
      up_latency_ = std::max(up_latency_, latency);
      return;
    }
    const std::int64_t gpu = gpu_numbers_.at(from);
    if (other == kinds_.end()) refuse(line, "a link between two GPUs, expected one to a switch");
    Wires& wires = (other->second ? inside_ : outside_)[static_cast<std::size_t>(gpu)];
    wires.speed += speed;
    wires.latency = std::max(wires.latency, latency);
    if (!other->second) {
      down_[to] += speed;
      servers_[to].insert(gpu / per_server_);
    }
  }

  /// What the GPU with least has.
  LinkSpec device_link(const std::vector<Wires>& wires, const char* to,
                       ClusterSpec& cluster) const {
    const auto slower = [](const Wires& a, const Wires& b) { return a.speed < b.speed; };
    const auto [least, most] = std::ranges::minmax_element(wires, slower);
    if (!(least->speed > 0)) {
      throw InputError("{}: GPU {} has no link to {}", where_, least - wires.begin(), to);
    }
    if (least->speed != most->speed) {
      cluster.notes.push_back(
          fmt::format("GPUs have {:g} to {:g} GB/s to {}: the least is taken for all",
                      least->speed / kGiga, most->speed / kGiga, to));
    }
    return {least->speed, least->latency};
  }

  void level(ClusterSpec& cluster) const {
    if (up_.empty() || cluster.nodes < 2) return;
    double worst = 1;
    std::size_t servers = 0;
    for (const auto& [id, down] : down_) {
      servers = std::max(servers, servers_.at(id).size());
      const auto up = up_.find(id);
      if (up != up_.end()) worst = std::max(worst, down / up->second);
    }
    const auto joined = static_cast<int>(servers);
    if (joined >= cluster.nodes) return;
    cluster.levels.push_back({"leaf", joined, worst, up_latency_});
  }

  std::vector<TopologyLine> lines_;
  std::string where_;
  std::int64_t nodes_ = 0;
  std::int64_t gpus_ = 0;
  std::int64_t per_server_ = 0;
  std::int64_t links_ = 0;
  std::int64_t found_links_ = 0;
  std::map<std::int64_t, bool> kinds_;  ///< switches: whether inside a server
  std::map<std::int64_t, std::int64_t> gpu_numbers_;
  std::vector<Wires> inside_;
  std::vector<Wires> outside_;
  std::map<std::int64_t, double> down_;  ///< of switches that GPUs hang on
  std::map<std::int64_t, double> up_;
  std::map<std::int64_t, std::set<std::int64_t>> servers_;
  double up_latency_ = 0;
};

}  // namespace

ClusterSpec parse_simai_topology(std::string_view text, const std::string& where) {
  return SimAiFile(text, where).read();
}

bool is_simai_topology(std::string_view text) {
  for (const TopologyLine& line : lines_of(text)) {
    const std::vector<std::string> words = words_of(line.text);
    if (!words.empty()) return words.size() >= 5 && whole_of(words[0]) && whole_of(words[1]);
  }
  return false;
}

}  // namespace hydraulis::detail
