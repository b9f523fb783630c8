#include "costmodel/profile.h"

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "costmodel/compose.h"
#include "costmodel/presets/profiles.h"
#include "costmodel/profile_file.h"

namespace hydraulis {
namespace {

constexpr int kMostDegree = 1 << 20;

void check_number(const std::string& where, const std::string& field, double value, bool positive) {
  if (!std::isfinite(value) || value < 0 || (positive && value == 0)) {
    throw InputError("{}: field '{}' is {}, expected a finite number {}", where, field, value,
                     positive ? "more than 0" : "of 0 or more");
  }
}

void check_scheme(const SchemeCoefficients& row, const Profile& profile, const std::string& where,
                  std::size_t index) {
  const auto field = [index](const char* name) {
    return fmt::format("schemes[{}].{}", index, name);
  };
  const Scheme& scheme = row.scheme;
  for (const auto& [name, degree] :
       {std::pair{"cp", scheme.cp}, {"tp", scheme.tp}, {"pp", scheme.pp}}) {
    if (degree < 1 || degree > kMostDegree) {
      throw InputError("{}: field '{}' is {}, expected 1 to {}", where, field(name), degree,
                       kMostDegree);
    }
  }
  if (scheme.pp > profile.model.layers) {
    throw InputError("{}: field '{}' is {}, more stages than the model's {} layers", where,
                     field("pp"), scheme.pp, profile.model.layers);
  }
  if (!scheme.layers.empty()) {
    throw InputError("{}: field '{}' is given; coefficients belong to an even split", where,
                     field("layers"));
  }
  check_number(where, field("a"), row.a, false);
  check_number(where, field("b"), row.b, false);
  check_number(where, field("c"), row.c, false);
  if (row.a == 0 && row.b == 0) {
    throw InputError("{}: fields '{}' and 'b' are both 0: a stage that takes no time", where,
                     field("a"));
  }
}

void check_memory(const PublishedMemory& memory, const std::string& where) {
  for (const auto& [tp, bytes] : memory.activation_bytes_by_tp) {
    check_number(where, fmt::format("memory.activation_bytes[tp={}]", tp), bytes, true);
  }
  check_number(where, "memory.state_bytes", memory.state_bytes, false);
  check_number(where, "memory.optimizer_share", memory.optimizer_share, false);
  if (memory.optimizer_share > 1) {
    throw InputError("{}: field 'memory.optimizer_share' is {}, expected 0 to 1", where,
                     memory.optimizer_share);
  }
  check_number(where, "memory.constant_gap_bytes", memory.constant_gap_bytes, false);
  check_number(where, "memory.safety_bytes", memory.safety_bytes, false);
  check_number(where, "memory.device_bound_bytes", memory.device_bound_bytes, false);
}

}  // namespace

void check_profile(const Profile& profile, const std::string& where) {
  check_model(profile.model, where + ": model");
  if (profile.schemes.empty()) throw InputError("{}: field 'schemes' is empty", where);
  for (std::size_t i = 0; i < profile.schemes.size(); ++i) {
    check_scheme(profile.schemes[i], profile, where, i);
    for (std::size_t j = 0; j < i; ++j) {
      if (profile.schemes[i].scheme == profile.schemes[j].scheme) {
        throw InputError("{}: field 'schemes[{}]' repeats scheme {} of schemes[{}]", where, i,
                         to_string(profile.schemes[i].scheme), j);
      }
    }
  }
  for (const auto& [tp, tokens] : profile.min_tokens_by_tp) {
    if (tokens < 0) {
      throw InputError("{}: field 'utilisation.min_tokens[tp={}]' is {}, expected 0 or more", where,
                       tp, tokens);
    }
  }
  check_memory(profile.memory, where);
}

Profile load_profile(const std::string& preset_or_path) {
  if (auto preset = detail::profile_preset(preset_or_path)) return *std::move(preset);
  std::error_code ec;
  if (!std::filesystem::exists(preset_or_path, ec)) {
    throw InputError("profile '{}': neither a preset nor a file; presets are {}", preset_or_path,
                     detail::profile_preset_names());
  }
  if (detail::profile_file_kind(preset_or_path) == detail::kOperatorKind) {
    return operator_profile(
        measured_operators(read_operator_profile(preset_or_path), preset_or_path));
  }
  Profile profile = detail::read_profile_file(preset_or_path);
  check_profile(profile, preset_or_path);
  return profile;
}

void write_profile(const Profile& profile, const std::filesystem::path& path) {
  check_profile(profile, path.string());
  detail::write_profile_file(profile, path);
}

}  // namespace hydraulis
