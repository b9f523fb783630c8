#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

namespace hydraulis {

/// Activation recomputation of a pipeline.
enum class Recompute { none, selective, full };

/// Parallel scheme ⟨cp, tp, pp⟩: how one pipeline (model replica) is laid over cp·tp·pp devices.
struct Scheme {
  int cp = 1;
  int tp = 1;
  int pp = 1;
  Recompute recompute = Recompute::none;
  /// Layers of each stage; empty means split as evenly as possible, earlier stages first.
  std::vector<int> layers;
  /// Which of the cluster's node groups has the pipeline's devices (ClusterSpec::groups), from 0.
  int group = 0;

  int devices() const { return cp * tp * pp; }
  auto operator<=>(const Scheme&) const = default;
};

/// "(1,16,1)", with ",recompute=full", ",layers=15+17" and ",group=1" where they differ from the
/// default.
std::string to_string(const Scheme& scheme);
/// Parses the form above; `where` names the option or file in errors. Throws InputError.
Scheme parse_scheme(std::string_view text, const std::string& where);

/// Layers of each stage of a model with `layers` layers, each layer exactly once: the scheme's own
/// list, or an even split whose remainder goes to the first stages (30 on 4: 8, 8, 7, 7).
/// Throws InputError when the list does not fit or there are fewer layers than stages.
std::vector<int> stage_layers(const Scheme& scheme, int layers);

}  // namespace hydraulis
