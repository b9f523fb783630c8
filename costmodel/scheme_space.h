#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "costmodel/cost_model.h"

namespace hydraulis {

/// Schemes to consider beside those that a profile knows; their times are derived
/// (costmodel/derived_schemes.h) and say so.
struct SchemeSpace {
  bool context_parallel = false;  ///< rings of 2, 4 and 8
  bool recompute = false;         ///< selective and full recomputation
  bool layer_splits = false;      ///< layers split over the stages by time and by memory

  bool any() const { return context_parallel || recompute || layer_splits; }
  bool operator==(const SchemeSpace&) const = default;
};

/// "cp,recompute,layers" or any part of it; "" for nothing.
std::string to_string(const SchemeSpace& space);
/// Parses the form above; `where` names the option or field in errors. Throws InputError.
SchemeSpace parse_scheme_space(std::string_view text, const std::string& where);

/// The profile with the derived rows of the space added. `memory` decides what a split by memory
/// balances; the published formula counts the fullest stage everywhere, so it has no such splits,
/// and nothing of recomputation. Throws InputError for recomputation under it.
Profile widened_profile(const ModelSpec& model, const ClusterSpec& cluster, const Profile& profile,
                        MemoryModel memory, const SchemeSpace& space);

}  // namespace hydraulis
