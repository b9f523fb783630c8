#include "costmodel/build_cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/error.h"
#include "costmodel/compose.h"
#include "costmodel/host_states.h"
#include "costmodel/presets/profiles.h"

namespace hydraulis {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr int kMostDoublings = 7;

/// Times carry over when every layer does the same work.
bool same_layers(const ModelSpec& a, const ModelSpec& b) {
  return a.layers == b.layers && a.hidden == b.hidden && a.ffn_hidden == b.ffn_hidden &&
         a.heads == b.heads && a.kv_heads == b.kv_heads && a.head_dim == b.head_dim;
}

OptimizerLayout layout_of(const Scheme& scheme, const ClusterSpec& cluster) {
  return {cluster.devices() / (scheme.tp * scheme.pp), scheme.tp, scheme.pp};
}

/// Homogeneous strategies over all devices, each with its own optimizer layout, in the order of
/// preference: no recomputation, no context parallelism, few devices, few stages.
std::vector<CostModel> candidates(CostModel base, std::vector<Scheme>& schemes) {
  schemes = known_schemes(base);
  std::erase_if(schemes, [&](const Scheme& scheme) {
    return base.cluster.devices() % scheme.devices() != 0;
  });
  std::stable_sort(schemes.begin(), schemes.end(), [](const Scheme& a, const Scheme& b) {
    const auto key = [](const Scheme& s) {
      return std::tuple(s.recompute, s.cp > 1, s.devices(), s.cp, s.pp);
    };
    return key(a) < key(b);
  });
  std::vector<CostModel> models;
  for (const Scheme& scheme : schemes) {
    base.optimizer = layout_of(scheme, base.cluster);
    models.push_back(base);
  }
  return models;
}

struct Search {
  std::optional<Scheme> fits;
  std::optional<Scheme> roomiest;  ///< holds the longest micro-batch
  std::int64_t longest = 0;
  double missing_bytes = INFINITY;  ///< fewest that some scheme lacks for the context
  double missing_limit = 0;
  std::optional<Scheme> nearest;
};

Search search(const CostModel& base, std::int64_t context) {
  Search result;
  std::vector<Scheme> schemes;
  const auto models = candidates(base, schemes);
  for (std::size_t i = 0; i < schemes.size(); ++i) {
    const std::int64_t tokens = max_tokens(models[i], schemes[i]);
    if (tokens >= context) {
      result.fits = schemes[i];
      return result;
    }
    if (tokens > result.longest) {
      result.longest = tokens;
      result.roomiest = schemes[i];
    }
    const double limit = memory_limit_bytes(models[i]);
    const double missing =
        required_bytes(models[i], schemes[i], static_cast<double>(context)) - limit;
    if (missing < result.missing_bytes) {
      result.missing_bytes = missing;
      result.missing_limit = limit;
      result.nearest = schemes[i];
    }
  }
  return result;
}

/// The fewest nodes (doubling) on which the context fits, or 0.
int enough_devices(CostModel base, std::int64_t context) {
  for (int i = 0; i < kMostDoublings; ++i) {
    base.cluster.nodes *= 2;
    if (base.profile.operators) {
      base.profile = compose_profile(base.profile.operators, base.model, base.cluster);
    } else if (base.profile.analytic) {
      base.profile = analytic_profile(base.model, base.cluster);
    }
    if (search(base, context).fits) return base.cluster.devices();
  }
  return 0;
}

[[noreturn]] void refuse(const CostModel& base, std::int64_t context, const Search& found) {
  const int devices = base.cluster.devices();
  std::string message;
  if (found.nearest && std::isfinite(found.missing_bytes)) {
    message = fmt::format(
        "{} does not fit on {} with a context of {} tokens: device memory is missed by {:.2f} GiB "
        "({} needs {:.2f} GiB, a device offers {:.2f} GiB)",
        base.model.name, base.cluster.name, context, found.missing_bytes / kGiB,
        to_string(*found.nearest), (found.missing_bytes + found.missing_limit) / kGiB,
        found.missing_limit / kGiB);
  } else {
    message = fmt::format(
        "{} does not fit on {}: profile {} knows no parallel scheme that divides {} devices",
        base.model.name, base.cluster.name, base.profile.name, devices);
  }
  if (found.longest > 0) {
    message += fmt::format("; a context of {} tokens fits, with {}", found.longest,
                           to_string(*found.roomiest));
  } else {
    message += "; no context fits, not even 128 tokens";
  }
  const int enough = enough_devices(base, context);
  message += enough > 0 ? fmt::format("; {} devices hold {} tokens", enough, context)
                        : fmt::format(
                              "; no number of devices up to {} holds {} tokens with the "
                              "schemes known",
                              devices << kMostDoublings, context);
  throw InfeasibleError("{}", message);
}

CostModel parts(const ModelSpec& model, const ClusterSpec& cluster, const Profile& given,
                MemoryModel memory) {
  const Profile profile =
      given.operators ? compose_profile(given.operators, model, cluster) : given;
  if (!same_layers(model, profile.model)) {
    throw InputError(
        "profile {}: was taken on a model of {} layers, hidden {}, feed-forward {}, "
        "{} heads, {} key/value heads, but {} has {}, {}, {}, {}, {}; give a profile "
        "of this model or none (analytic)",
        profile.name, profile.model.layers, profile.model.hidden, profile.model.ffn_hidden,
        profile.model.heads, profile.model.kv_heads, model.name, model.layers, model.hidden,
        model.ffn_hidden, model.heads, model.kv_heads);
  }
  const bool constants =
      !profile.memory.activation_bytes_by_tp.empty() && profile.memory.device_bound_bytes > 0;
  if (memory == MemoryModel::published && !constants) {
    throw InputError("profile {}: has no constants for the published memory model; use composed",
                     profile.name);
  }
  CostModel result;
  result.model = model;
  result.cluster = cluster;
  result.profile = profile;
  if (profile.operators) result.numbers = number_bytes(profile.operators->element_bytes);
  if (profile.device != cluster.device.name) {
    result.profile.limits.push_back(fmt::format(
        "the times were taken on {}, the cluster's devices are {}: they are used as they "
        "are",
        profile.device, cluster.device.name));
  }
  if (model.vocab != profile.model.vocab) {
    result.profile.limits.push_back(fmt::format(
        "the times were taken with a vocabulary of {}, the model has {}: the head's share "
        "is not corrected (memory is)",
        profile.model.vocab, model.vocab));
  }
  result.memory = memory;
  return result;
}

}  // namespace

Profile default_profile(const ModelSpec& model, const ClusterSpec& cluster) {
  auto preset = detail::profile_preset(cluster.device.name + "-" + model.name);
  if (preset && same_layers(preset->model, model)) return *std::move(preset);
  return analytic_profile(model, cluster);
}

MemoryModel default_memory_model(const Profile& profile) {
  return profile.memory.activation_bytes_by_tp.empty() ? MemoryModel::composed
                                                       : MemoryModel::published;
}

CostModel make_cost_model(const ModelSpec& model, const ClusterSpec& cluster,
                          const Profile& profile, MemoryModel memory,
                          const OptimizerLayout& optimizer, OptimizerStates states) {
  CostModel result = parts(model, cluster, profile, memory);
  const auto& [dp, tp, pp] = optimizer;
  const bool possible = dp > 0 && tp > 0 && pp > 0;
  if (!possible || std::int64_t{dp} * tp * pp != cluster.devices()) {
    throw InputError("optimizer layout {},{},{}: dp*tp*pp is {}, expected the cluster's {} devices",
                     dp, tp, pp, std::int64_t{dp} * tp * pp, cluster.devices());
  }
  if (pp > model.layers) {
    throw InputError("optimizer layout {},{},{}: {} stages but the model has {} layers", dp, tp, pp,
                     pp, model.layers);
  }
  result.optimizer = optimizer;
  if (states == OptimizerStates::host) keep_states_on_host(result);
  return result;
}

Scheme default_homogeneous_scheme(const ModelSpec& model, const ClusterSpec& cluster,
                                  const Profile& profile, MemoryModel memory, std::int64_t context,
                                  OptimizerStates states) {
  if (context < 1) throw InputError("context is {}, expected at least 1 token", context);
  CostModel base = parts(model, cluster, profile, memory);
  if (states == OptimizerStates::host) {
    base.optimizer = {cluster.devices(), 1, 1};  // every layout has all devices
    keep_states_on_host(base);
  }
  const Search found = search(base, context);
  if (!found.fits) refuse(base, context, found);
  return *found.fits;
}

OptimizerLayout default_optimizer_layout(const ModelSpec& model, const ClusterSpec& cluster,
                                         const Profile& profile, MemoryModel memory,
                                         std::int64_t context, OptimizerStates states) {
  return layout_of(default_homogeneous_scheme(model, cluster, profile, memory, context, states),
                   cluster);
}

}  // namespace hydraulis
