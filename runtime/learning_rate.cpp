#include "runtime/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace hydraulis {

double LearningRate::at(std::int64_t update) const {
  if (update <= warmup) {
    return peak * static_cast<double>(update) / static_cast<double>(warmup);
  }
  if (shape == Decay::constant || decay <= warmup) return peak;
  const double progress =
      std::min(1.0, static_cast<double>(update - warmup) / static_cast<double>(decay - warmup));
  const double share =
      shape == Decay::linear ? 1 - progress : 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return minimum + (peak - minimum) * share;
}

LearningRate::Decay parse_decay(const std::string& text, const std::string& where) {
  if (text == "constant") return LearningRate::Decay::constant;
  if (text == "linear") return LearningRate::Decay::linear;
  if (text == "cosine") return LearningRate::Decay::cosine;
  throw InputError("{}: \"{}\", expected constant, linear or cosine", where, text);
}

const char* to_string(LearningRate::Decay decay) {
  switch (decay) {
    case LearningRate::Decay::constant:
      return "constant";
    case LearningRate::Decay::linear:
      return "linear";
    case LearningRate::Decay::cosine:
      return "cosine";
  }
  return "?";
}

}  // namespace hydraulis
