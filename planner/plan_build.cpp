#include "planner/plan_build.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>

#include "base/error.h"
#include "costmodel/build_cost_model.h"
#include "costmodel/host_states.h"
#include "costmodel/node_groups.h"
#include "planner/propose_set.h"

namespace hydraulis {
namespace {

/// Beyond, thinning a set takes minutes and gigabytes.
constexpr int kMostProposedDevices = 4096;

const char* to_string(MemoryModel memory) {
  return memory == MemoryModel::published ? "published" : "composed";
}

OptimizerLayout parse_layout(const std::string& text) {
  int values[3] = {};
  const char* at = text.data();
  const char* end = at + text.size();
  for (int i = 0; i < 3; ++i) {
    const auto [next, error] = std::from_chars(at, end, values[i]);
    const bool separated = i == 2 ? next == end : next != end && *next == ',';
    if (error != std::errc{} || values[i] < 1 || values[i] > 1'000'000 || !separated) {
      throw InputError("--optimizer-layout: '{}', expected dp,tp,pp such as 4,16,1", text);
    }
    at = next + 1;
  }
  return {values[0], values[1], values[2]};
}

/// Plans over more devices than the cluster has, or fewer, are refused with the difference.
void check_devices(const Strategy& strategy, const ClusterSpec& cluster) {
  for (int group = 0; !cluster.groups.empty() && group < group_count(cluster); ++group) {
    int own = 0;
    for (const Scheme& scheme : strategy) own += scheme.group == group ? scheme.devices() : 0;
    if (own > group_devices(cluster, group)) {
      throw InfeasibleError(
          "infeasible: devices: strategy {} needs {} of node group {}, cluster '{}' has {} there",
          to_string(strategy), own, group, cluster.name, group_devices(cluster, group));
    }
  }
  for (const Scheme& scheme : strategy) node_group(cluster, scheme.group);  // says which there are
  const int used = devices(strategy);
  if (used == cluster.devices()) return;
  if (used > cluster.devices()) {
    throw InfeasibleError(
        "infeasible: devices: strategy {} needs {}, cluster '{}' has {}, {} fewer",
        to_string(strategy), used, cluster.name, cluster.devices(), used - cluster.devices());
  }
  throw InputError(
      "--strategies: {} uses {} devices, cluster '{}' has {}; a strategy uses them all",
      to_string(strategy), used, cluster.name, cluster.devices());
}

OptimizerLayout layout_of(const Strategy& strategy) {
  const Scheme& scheme = strategy.front();
  return {static_cast<int>(strategy.size()) * scheme.cp, scheme.tp, scheme.pp};
}

/// At least one strategy must be able to train a sequence as long as the context.
void check_context(const CostModel& model, const std::vector<Strategy>& strategies,
                   std::int64_t context) {
  std::int64_t longest = 0;
  Scheme holder;
  for (const Strategy& strategy : strategies) {
    for (const Scheme& scheme : strategy) {
      const std::int64_t tokens = max_tokens(model, scheme);
      if (tokens > longest) {
        longest = tokens;
        holder = scheme;
      }
    }
  }
  if (longest < context) {
    throw InfeasibleError(
        "infeasible: memory: no strategy given holds a sequence of the context's {} tokens: {} "
        "holds the most, {}, which is {} fewer; --context {} fits",
        context, to_string(holder), longest, context - longest, longest);
  }
}

/// The layout for the context; where none holds it, says which derived schemes would.
OptimizerLayout layout_for(const PlanRequest& request, const ModelSpec& model,
                           const ClusterSpec& cluster, const Profile& known, MemoryModel memory) {
  const auto context = static_cast<std::int64_t>(request.context);
  const auto layout = [&](const SchemeSpace& space, MemoryModel limit) {
    return default_optimizer_layout(model, cluster,
                                    widened_profile(model, cluster, known, limit, space), limit,
                                    context, request.optimizer_states);
  };
  try {
    return layout(request.schemes, memory);
  } catch (const InfeasibleError& error) {
    for (const char* text : {"cp", "recompute", "cp,recompute"}) {
      const SchemeSpace space = parse_scheme_space(text, "schemes");
      const MemoryModel limit = space.recompute ? MemoryModel::composed : memory;
      if (space.recompute && request.memory_model == MemoryModel::published) continue;
      try {
        layout(space, limit);
      } catch (const InfeasibleError&) {
        continue;
      }
      throw InfeasibleError("{}; --schemes {} fits here", error.what(), text);
    }
    throw;
  }
}

}  // namespace

std::vector<std::string> provenance(const CostModel& model) {
  std::vector<std::string> notes;
  notes.push_back(fmt::format("times: profile '{}' ({}), {}", model.profile.name,
                              model.profile.analytic ? "analytic" : "measured",
                              model.profile.origin));
  for (const std::string& limit : model.profile.limits) notes.push_back("profile: " + limit);
  for (const std::string& note : model.cluster.notes) notes.push_back("cluster: " + note);
  if (model.states == OptimizerStates::host) {
    notes.push_back(fmt::format(
        "optimizer states: in host memory, {:.2f} GiB of it a node",
        host_state_bytes(owned_elements(model)) * model.cluster.devices_per_node / (1 << 30)));
  }
  for (std::size_t g = 0; g < model.cluster.groups.size(); ++g) {
    const NodeGroup& group = model.cluster.groups[g];
    notes.push_back(fmt::format(
        "cluster: group {}: {} nodes of {}, {:.3g} times as fast as the profile's devices", g,
        group.nodes, group.device.name, group.relative_speed));
  }
  return notes;
}

void note_extrapolation(PlanResult& result) {
  const auto context = static_cast<double>(result.plan.context);
  const std::string beyond = beyond_measurements(result.model, context, context);
  if (!beyond.empty()) result.notes.push_back(beyond);
}

CostModel cost_model_of(const Plan& plan, const std::string& where) {
  try {
    const ModelSpec model = load_model(plan.model);
    const ClusterSpec cluster = load_cluster(plan.cluster);
    const Profile known =
        plan.profile.empty() ? default_profile(model, cluster) : load_profile(plan.profile);
    const MemoryModel memory =
        plan.memory_model == "composed" ? MemoryModel::composed : MemoryModel::published;
    const Profile profile = widened_profile(model, cluster, known, memory, plan.scheme_space);
    return make_cost_model(model, cluster, profile, memory, plan.set.optimizer,
                           plan.optimizer_states);
  } catch (const Error& error) {
    throw Error(error.code(), where + ": " + error.what());
  }
}

PlanResult make_plan(const PlanRequest& request, const LengthTrace* trace) {
  std::optional<Profile> profile;
  if (!request.profile.empty()) profile = load_profile(request.profile);
  return make_plan(request, load_model(request.model), load_cluster(request.cluster), profile,
                   trace);
}

PlanResult make_plan(const PlanRequest& request, const ModelSpec& model, const ClusterSpec& cluster,
                     const std::optional<Profile>& given_profile, const LengthTrace* trace) {
  const Profile known = given_profile ? *given_profile : default_profile(model, cluster);
  const bool composed =
      request.schemes.recompute || request.optimizer_states == OptimizerStates::host;
  const MemoryModel memory =
      request.memory_model.value_or(composed ? MemoryModel::composed : default_memory_model(known));
  const Profile profile = widened_profile(model, cluster, known, memory, request.schemes);
  const auto context = static_cast<std::int64_t>(request.context);

  std::vector<Strategy> given;
  if (!request.strategies.empty()) given = parse_strategies(request.strategies, "--strategies");
  for (const Strategy& strategy : given) check_devices(strategy, cluster);
  OptimizerLayout optimizer;
  const auto homogeneous = std::find_if(given.begin(), given.end(), is_homogeneous);
  if (!request.optimizer_layout.empty()) {
    optimizer = parse_layout(request.optimizer_layout);
  } else if (homogeneous != given.end()) {
    optimizer = layout_of(*homogeneous);
  } else {
    optimizer = layout_for(request, model, cluster, known, memory);
  }

  PlanResult result;
  result.model =
      make_cost_model(model, cluster, profile, memory, optimizer, request.optimizer_states);
  Plan& plan = result.plan;
  plan.optimizer_states = request.optimizer_states;
  plan.model = request.model;
  plan.cluster = request.cluster;
  plan.profile = request.profile;
  plan.memory_model = to_string(memory);
  plan.scheme_space = request.schemes;
  plan.context = request.context;
  plan.tokens_per_batch = request.tokens_per_batch;
  plan.schemes = scheme_options(result.model, request.max_tokens);
  result.notes = provenance(result.model);
  note_extrapolation(result);
  if (!given.empty()) {
    plan.set.strategies = std::move(given);
    plan.set.optimizer = optimizer;
    for (const Strategy& strategy : plan.set.strategies) {
      for (const Scheme& scheme : strategy) {
        if (!stage_cost(result.model, scheme, 0)) {
          throw InputError("--strategies: profile '{}' has no times for {}", profile.name,
                           to_string(scheme));
        }
        if (max_tokens(result.model, scheme) <= 0) {
          throw InfeasibleError(
              "infeasible: memory: {} of strategy {} does not hold a single micro-batch of 128 "
              "tokens "
              "on {} with the optimizer layout dp{}·tp{}·pp{}; use more tensor or pipeline stages",
              to_string(scheme), to_string(strategy), cluster.device.name, optimizer.dp,
              optimizer.tp, optimizer.pp);
        }
      }
    }
    check_context(result.model, plan.set.strategies, context);
    return result;
  }
  if (trace == nullptr) {
    throw InputError(
        "--trace is missing: strategies are proposed from a trace's lengths "
        "(or give them with --strategies)");
  }
  if (cluster.devices() > kMostProposedDevices) {
    throw InputError(
        "cluster {}: {} devices; strategies are proposed for at most {}, so give them with "
        "--strategies",
        cluster.name, cluster.devices(), kMostProposedDevices);
  }
  ProposalOptions options;
  options.context = context;
  options.max_tokens_cap = request.max_tokens;
  options.tokens_per_batch = static_cast<std::int64_t>(request.tokens_per_batch);
  std::vector<Batch> sample;
  if (request.tokens_per_batch > 0) {
    sample = planning_sample(*trace, request.tokens_per_batch, request.context, cluster.devices());
  }
  AssignmentOptions assignment;
  assignment.max_tokens = request.max_tokens;
  assignment.traffic_overlaps = request.traffic_overlaps;
  const bool wide = request.schemes.any() && cluster.groups.empty();
  ProposedSet proposal =
      propose_set(*trace, result.model, plan.schemes, options, assignment, sample, wide);
  if (wide && !sample.empty() && request.optimizer_layout.empty()) {
    // More schemes hold the context, each with its own optimizer layout and so its own traffic.
    const auto other = best_homogeneous_optimizer(result.model, assignment, context, sample);
    if (other && std::tie(other->dp, other->tp, other->pp) !=
                     std::tie(optimizer.dp, optimizer.tp, optimizer.pp)) {
      CostModel model_there =
          make_cost_model(model, cluster, profile, memory, *other, request.optimizer_states);
      std::vector<SchemeOption> schemes = scheme_options(model_there, request.max_tokens);
      ProposedSet there =
          propose_set(*trace, model_there, schemes, options, assignment, sample, wide);
      there.seconds += proposal.seconds;
      if (there.sample_seconds < proposal.sample_seconds) {
        proposal = std::move(there);
        result.model = std::move(model_there);
        plan.schemes = std::move(schemes);
      }
    }
  }
  plan.set = std::move(proposal.set);
  if (!sample.empty()) {
    result.notes.push_back(fmt::format("{} strategies proposed, {} kept that sampled batches use",
                                       proposal.proposed, plan.set.strategies.size()));
  }
  plan.proposal_seconds = proposal.seconds;
  for (const DroppedScheme& dropped : proposal.dropped) {
    result.unused_schemes.push_back(to_string(dropped.scheme) + " not used: " + dropped.reason);
  }
  if (profile.analytic) {
    for (const std::string& excluded : excluded_schemes(model, cluster)) {
      result.unused_schemes.push_back(excluded);
    }
  }
  return result;
}

}  // namespace hydraulis
