#pragma once

#include <cstdint>
#include <string>

namespace hydraulis {

/// Learning rate by update: rises in a line over `warmup` updates, then falls to `minimum` over the
/// rest of `decay` updates along a cosine or a line, or stays.
struct LearningRate {
  enum class Decay : std::uint8_t { constant, linear, cosine };
  double peak = 1e-3;
  double minimum = 0;
  std::int64_t warmup = 0;  ///< updates
  std::int64_t decay = 0;   ///< updates in all, warm-up included; 0: never falls
  Decay shape = Decay::cosine;

  double at(std::int64_t update) const;  ///< counted from 1
};

/// "constant", "linear", "cosine". Throws InputError; `where` names the field.
LearningRate::Decay parse_decay(const std::string& text, const std::string& where);
const char* to_string(LearningRate::Decay decay);

}  // namespace hydraulis
