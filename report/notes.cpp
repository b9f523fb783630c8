#include "report/notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace hydraulis {
namespace {

/// Which communication a profile's times contain.
std::string contents(const Profile& profile) {
  if (profile.contains_tensor_parallel_communication && profile.contains_pipeline_communication) {
    return "tensor-parallel and pipeline communication inside";
  }
  if (profile.contains_tensor_parallel_communication) {
    return "tensor-parallel communication inside, pipeline transfers charged on top";
  }
  return profile.contains_pipeline_communication ? "pipeline communication inside"
                                                 : "no communication inside";
}

std::string network(const ClusterSpec& cluster, const CostingOptions& costing) {
  if (costing.no_communication) return "no communication counted";
  const auto speed = [&](const LinkSpec& link) {
    return fmt::format("{:.4g} GB/s",
                       costing.bandwidth_scale * link.bandwidth_bytes_per_second / 1e9);
  };
  std::string text = "network assumed: " + speed(cluster.intra_node) + " a device in a node";
  if (cluster.nodes > 1) text += ", " + speed(cluster.inter_node) + " between nodes";
  if (shares_links(cluster, costing)) text += ", shared by the flows that use them";
  return text;
}

/// What a profile's schemes leave untried, which matters beside a baseline: "" when nothing.
std::string untried(const CostModel& model) {
  bool context_parallel = false;
  bool recompute = false;
  for (const Scheme& scheme : known_schemes(model)) {
    context_parallel = context_parallel || scheme.cp > 1;
    recompute = recompute || scheme.recompute != Recompute::none;
  }
  if (context_parallel && recompute) return "";
  if (context_parallel) return " (without recomputation)";
  return recompute ? " (without context parallelism)"
                   : " (without context parallelism or recomputation)";
}

/// Whether schemes were added whose times nobody measured (costmodel/derived_schemes.h).
bool has_derived(const Profile& profile) {
  return std::ranges::any_of(profile.limits, [](const std::string& limit) {
    return limit.find(" derived: ") != std::string::npos;
  });
}

/// The line every result carries.
std::string one_line(const CostModel& model, const SystemChoice& choice,
                     const CostingOptions* costing) {
  std::string line = fmt::format("{}{} on {}{}; times: {} profile {}{}, {}", model.model.name,
                                 choice.default_model ? " (default)" : "", model.cluster.name,
                                 choice.default_cluster ? " (default)" : "",
                                 model.profile.analytic ? "analytic" : "measured",
                                 model.profile.name, untried(model), contents(model.profile));
  if (has_derived(model.profile)) line += ", some schemes derived";
  if (costing != nullptr) line += "; " + network(model.cluster, *costing);
  return line + " (--verbose: origins and limits)";
}

void add_new(std::vector<std::string>& lines, const std::vector<std::string>& more) {
  for (const std::string& line : more) {
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  }
}

}  // namespace

std::vector<std::string> Notes::shown() const {
  std::vector<std::string> lines = verbose ? all() : brief;
  if (sources.empty()) return lines;
  if (!verbose) {
    // Behind the line that names the system.
    lines.insert(lines.begin() + std::min<std::ptrdiff_t>(1, std::ssize(lines)),
                 sources_line(sources));
    return lines;
  }
  for (const Source& source : sources) {
    lines.push_back(fmt::format("{}: {}, {}", source.what, to_string(source.kind), source.detail));
  }
  return lines;
}

std::vector<std::string> Notes::all() const {
  std::vector<std::string> lines = brief;
  add_new(lines, details);
  return lines;
}

Notes provenance_notes(const PlanResult& plan, const SystemChoice& choice,
                       const CostingOptions* costing) {
  const CostModel& model = plan.model;
  Notes notes;
  notes.brief.push_back(one_line(model, choice, costing));
  if (model.profile.device != model.cluster.device.name) {
    notes.brief.push_back(
        fmt::format("the times were taken on {}, the cluster's devices are {}: used as they are",
                    model.profile.device, model.cluster.device.name));
  }
  add_new(notes.brief, model.cluster.warnings);
  notes.sources = sources_of(model, costing, plan.plan.profile);
  notes.details = provenance(model);
  if (costing != nullptr) add_new(notes.details, costing_assumptions(model, *costing));
  // What making the plan had to say beyond where its numbers come from.
  for (const std::string& note : plan.notes) {
    const auto& known = notes.details;
    if (std::find(known.begin(), known.end(), note) == known.end()) notes.brief.push_back(note);
  }
  return notes;
}

std::vector<int> unused_devices(const std::vector<Strategy>& strategies, int devices) {
  std::vector<int> unused;
  unused.reserve(strategies.size());
  for (const Strategy& strategy : strategies) {
    unused.push_back(std::max(0, devices - hydraulis::devices(strategy)));
  }
  return unused;
}

std::string unused_devices_note(const std::vector<Strategy>& strategies, int devices) {
  const std::vector<int> unused = unused_devices(strategies, devices);
  const auto leaving = std::count_if(unused.begin(), unused.end(), [](int n) { return n > 0; });
  if (leaving == 0) return "";
  const auto most = std::max_element(unused.begin(), unused.end());
  const auto worst = static_cast<std::size_t>(most - unused.begin());
  return fmt::format("{} of {} strategies leave devices unused; strategy {}, {}, leaves {} of {}",
                     leaving, strategies.size(), worst, to_string(strategies[worst]), *most,
                     devices);
}

}  // namespace hydraulis
