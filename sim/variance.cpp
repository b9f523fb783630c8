#include "sim/variance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "planner/program/reshard.h"
#include "traces/portable_math.h"

namespace hydraulis {
namespace {

/// What a stream of random numbers is for; streams never depend on one another.
enum class Purpose : std::uint64_t { compute, transfer, chosen, active };
constexpr std::uint64_t kPurposes = 4;

Random stream(std::uint64_t seed, std::uint64_t iteration, std::uint64_t who, Purpose purpose) {
  Random of_iteration(seed, iteration);
  return {of_iteration.next(), who * kPurposes + static_cast<std::uint64_t>(purpose)};
}

bool contains(const std::vector<int>& numbers, int number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

/// Slowdowns are numbered so that one more in a list leaves the draws of the others as they were.
std::uint64_t straggler_number(std::size_t i) { return 2 * i; }
std::uint64_t slow_link_number(std::size_t i) { return 2 * i + 1; }

/// One draw for the slowdown of that number and a device or node (nodes are numbered apart).
double draw(const Variance& variance, std::uint64_t iteration, std::uint64_t slowdown, int number,
            bool node, Purpose purpose) {
  const auto who =
      (slowdown << 32U) | (static_cast<std::uint64_t>(number) << 1U) | (node ? 1U : 0U);
  return stream(variance.seed, iteration, who, purpose).uniform();
}

bool applies(const Variance& variance, const Slowdown& slowdown, std::uint64_t index, int device,
             int devices_per_node, std::uint64_t iteration) {
  if (iteration < slowdown.from) return false;
  if (slowdown.count > 0 && iteration - slowdown.from >= slowdown.count) return false;
  const int node = device / std::max(1, devices_per_node);
  const auto chosen = [&](double share, int number, bool is_node) {
    return share > 0 && draw(variance, 0, index, number, is_node, Purpose::chosen) < share;
  };
  const bool as_node = contains(slowdown.nodes, node) || chosen(slowdown.node_share, node, true);
  const bool as_device =
      contains(slowdown.devices, device) || chosen(slowdown.device_share, device, false);
  if (!as_node && !as_device) return false;
  if (slowdown.probability >= 1) return true;
  const auto acts = [&](int number, bool is_node) {
    return draw(variance, iteration, index, number, is_node, Purpose::active) <
           slowdown.probability;
  };
  return (as_node && acts(node, true)) || (as_device && acts(device, false));
}

bool computes(Op op) {
  switch (op) {
    case Op::forward:
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight:
    case Op::recompute:
    case Op::optimizer_step:
      return true;
    default:
      return false;
  }
}

/// Slowdowns of a set of devices' links: the slowest of each kind.
struct Links {
  double inside = 1;
  double between = 1;

  void add(const Links& other) {
    inside = std::max(inside, other.inside);
    between = std::max(between, other.between);
  }
};

/// Draws of one device in one iteration.
struct DeviceJitter {
  Random compute;
  Random transfer;
  double of_all_computing;  ///< where jitter is per iteration
  double of_all_transfers;
};

class Variation {
 public:
  Variation(const Program& program, const CostModel& model, const Variance& variance,
            std::uint64_t iteration)
      : program_(program), model_(model), variance_(variance), iteration_(iteration) {
    for (const Stage& stage : program.stages) {
      for (const int device : stage.devices) all_links_.add(links(device));
    }
  }

  void stage(const Stage& stage, std::vector<double>& seconds) {
    std::map<double, std::vector<DeviceJitter*>> by_slowdown;
    std::vector<DeviceJitter*> all;
    Links own;
    for (const int device : stage.devices) {
      all.push_back(&of(device));
      by_slowdown[compute_slowdown(variance_, device, program_.devices_per_node, iteration_)]
          .push_back(all.back());
      own.add(links(device));
    }
    for (std::size_t i = 0; i < stage.instructions.size(); ++i) {
      const Instruction& instruction = stage.instructions[i];
      if (computes(instruction.op)) {
        double slowest = 0;
        for (const auto& [slowdown, devices] : by_slowdown) {
          slowest = std::max(slowest, slowdown * jitter(devices, true));
        }
        if (instruction.op != Op::optimizer_step) slowest /= contained(stage);
        seconds[i] *= slowest;
      } else {
        seconds[i] *= link_factor(instruction, own) * jitter(all, false);
      }
    }
  }

 private:
  double contained(const Stage& stage) const {
    if (variance_.contained.empty()) return 1;
    const Scheme& scheme = program_.pipelines[stage.pipeline].scheme;
    return variance_.contained.at(static_cast<std::size_t>(scheme.group));
  }

  Links links(int device) const {
    if (variance_.slow_links.empty()) return {};
    const int per_node = program_.devices_per_node;
    return {link_slowdown(variance_, device, per_node, false, iteration_),
            link_slowdown(variance_, device, per_node, true, iteration_)};
  }

  DeviceJitter& of(int device) {
    const auto known = devices_.find(device);
    if (known != devices_.end()) return known->second;
    const auto who = static_cast<std::uint64_t>(device);
    Random compute = stream(variance_.seed, iteration_, who, Purpose::compute);
    Random transfer = stream(variance_.seed, iteration_, who, Purpose::transfer);
    const double first = compute.uniform();
    const double second = transfer.uniform();
    return devices_.emplace(device, DeviceJitter{compute, transfer, first, second}).first->second;
  }

  /// The largest factor of the devices. Laws grow with their argument, so the largest argument is
  /// drawn first and only that one looked up.
  double jitter(const std::vector<DeviceJitter*>& devices, bool computing) const {
    const Jitter& law = computing ? variance_.compute : variance_.transfer;
    if (law.variation == 0) return 1;
    double largest = 0;
    for (DeviceJitter* drawn : devices) {
      double u = computing ? drawn->of_all_computing : drawn->of_all_transfers;
      if (!law.per_iteration) u = (computing ? drawn->compute : drawn->transfer).uniform();
      largest = std::max(largest, u);
    }
    return jitter_factor(law, largest);
  }

  double link_factor(const Instruction& instruction, const Links& own) const {
    if (variance_.slow_links.empty()) return 1;
    Links passed = own;
    switch (instruction.op) {
      case Op::gather_parameters:
      case Op::reduce_gradients:
        for (int layer = instruction.layer_begin; layer < instruction.layer_end; ++layer) {
          add_owners(layer, passed);
        }
        break;
      case Op::gradient_norm:
      case Op::barrier:
        return std::max(all_links_.inside, all_links_.between);
      case Op::all_to_all:
        passed = all_links_;
        break;
      default:
        break;
    }
    const ClusterSpec& cluster = model_.cluster;
    const double inside = static_cast<double>(instruction.intra_node_bytes) /
                          cluster.intra_node.bandwidth_bytes_per_second;
    const double between = instruction.inter_node_bytes > 0
                               ? static_cast<double>(instruction.inter_node_bytes) /
                                     cluster.inter_node.bandwidth_bytes_per_second
                               : 0;
    if (!(inside + between > 0)) return 1;
    return (passed.inside * inside + passed.between * between) / (inside + between);
  }

  void add_owners(int layer, Links& passed) const {
    const OptimizerLayout& optimizer = program_.optimizer;
    const int per_stage = optimizer.dp * optimizer.tp;
    const int first = optimizer_stage(model_.model, optimizer, layer) * per_stage;
    for (int device = first; device < first + per_stage; ++device) passed.add(links(device));
  }

  const Program& program_;
  const CostModel& model_;
  const Variance& variance_;
  std::uint64_t iteration_;
  Links all_links_;
  std::map<int, DeviceJitter> devices_;
};

void check_named(const std::vector<int>& numbers, int count, const std::string& what,
                 const ClusterSpec& cluster) {
  for (const int number : numbers) {
    if (number < count) continue;
    throw InputError("{} names {}, expected 0 to {} of cluster {}", what, number, count - 1,
                     cluster.name);
  }
}

const char* to_string(JitterLaw law) {
  switch (law) {
    case JitterLaw::lognormal:
      return "log-normal";
    case JitterLaw::uniform:
      return "uniform";
    case JitterLaw::tail:
      return "exponential-tail";
  }
  return "?";
}

/// "devices 3, 8 and 11 more".
std::string listed(const std::set<int>& devices) {
  constexpr std::size_t kShown = 8;
  std::string text;
  std::size_t shown = 0;
  for (const int device : devices) {
    if (shown == kShown) break;
    text += fmt::format("{}{}", shown++ == 0 ? "" : ", ", device);
  }
  if (devices.size() > shown) text += fmt::format(" and {} more", devices.size() - shown);
  return (devices.size() == 1 ? "device " : "devices ") + text;
}

}  // namespace

bool Variance::any() const {
  return compute.variation > 0 || transfer.variation > 0 || !stragglers.empty() ||
         !slow_links.empty();
}

double jitter_factor(const Jitter& jitter, double u) {
  // The draws are multiples of 2⁻⁵³ and may be 0, where a log-normal law has no value.
  u = std::clamp(u, 0x1.0p-54, 1 - 0x1.0p-53);
  switch (jitter.law) {
    case JitterLaw::lognormal: {
      const double square = portable::log(1 + jitter.variation * jitter.variation);
      return portable::exp(std::sqrt(square) * portable::normal_quantile(u) - square / 2);
    }
    case JitterLaw::uniform:
      return 1 + std::sqrt(3.0) * jitter.variation * (2 * u - 1);
    case JitterLaw::tail:
      return 1 - jitter.variation - jitter.variation * portable::log(1 - u);
  }
  return 1;
}

double compute_slowdown(const Variance& variance, int device, int devices_per_node,
                        std::uint64_t iteration) {
  double factor = 1;
  for (std::size_t i = 0; i < variance.stragglers.size(); ++i) {
    const Slowdown& slowdown = variance.stragglers[i];
    if (applies(variance, slowdown, straggler_number(i), device, devices_per_node, iteration)) {
      factor *= slowdown.factor;
    }
  }
  return factor;
}

double link_slowdown(const Variance& variance, int device, int devices_per_node, bool between_nodes,
                     std::uint64_t iteration) {
  double factor = 1;
  for (std::size_t i = 0; i < variance.slow_links.size(); ++i) {
    const Slowdown& slowdown = variance.slow_links[i];
    if (!(between_nodes ? slowdown.between_nodes : slowdown.inside_nodes)) continue;
    if (applies(variance, slowdown, slow_link_number(i), device, devices_per_node, iteration)) {
      factor *= slowdown.factor;
    }
  }
  return factor;
}

void vary(Durations& durations, const Program& program, const CostModel& model,
          const Variance& variance, std::uint64_t iteration) {
  if (!variance.any()) return;
  Variation variation(program, model, variance, iteration);
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    variation.stage(program.stages[s], durations.seconds[s]);
  }
}

void check_variance(const Variance& variance, const ClusterSpec& cluster,
                    const std::string& where) {
  const auto check = [&](const std::vector<Slowdown>& slowdowns, const char* list) {
    for (std::size_t i = 0; i < slowdowns.size(); ++i) {
      const std::string field = fmt::format("{}: field '{}[{}].", where, list, i);
      check_named(slowdowns[i].devices, cluster.devices(), field + "devices'", cluster);
      check_named(slowdowns[i].nodes, cluster.nodes, field + "nodes'", cluster);
    }
  };
  check(variance.stragglers, "stragglers");
  check(variance.slow_links, "slow_links");
}

std::vector<std::string> variance_notes(const Variance& variance, const ClusterSpec& cluster) {
  std::vector<std::string> lines;
  const auto tell = [&](const Jitter& jitter, const char* what) {
    if (jitter.variation == 0) return;
    lines.push_back(fmt::format("jitter of {}: {}, coefficient of variation {:g}, per {}", what,
                                to_string(jitter.law), jitter.variation,
                                jitter.per_iteration ? "iteration" : "instruction"));
  };
  tell(variance.compute, "computing");
  tell(variance.transfer, "transfers");
  const auto slow = [&](const std::vector<Slowdown>& slowdowns, auto number, const char* what) {
    for (std::size_t i = 0; i < slowdowns.size(); ++i) {
      Slowdown whenever = slowdowns[i];
      whenever.from = whenever.count = 0;
      whenever.probability = 1;
      std::set<int> devices;
      for (int device = 0; device < cluster.devices(); ++device) {
        if (applies(variance, whenever, number(i), device, cluster.devices_per_node, 0)) {
          devices.insert(device);
        }
      }
      std::string when = "in every iteration";
      if (slowdowns[i].from > 0 || slowdowns[i].count > 0) {
        when = fmt::format("from iteration {}", slowdowns[i].from);
        if (slowdowns[i].count > 0) when += fmt::format(" for {}", slowdowns[i].count);
      }
      if (slowdowns[i].probability < 1) {
        when += fmt::format(", with probability {:g} each", slowdowns[i].probability);
      }
      lines.push_back(fmt::format("{} {:g} times as long on {}, {}", what, slowdowns[i].factor,
                                  devices.empty() ? "no device" : listed(devices), when));
    }
  };
  slow(variance.stragglers, straggler_number, "computing takes");
  slow(variance.slow_links, slow_link_number, "moving data takes");
  return lines;
}

}  // namespace hydraulis
