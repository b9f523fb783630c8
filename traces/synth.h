#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "traces/length_trace.h"

namespace hydraulis {

/// Log-normal body up to xm and Pareto tail above it. For lo <= x <= xm
///   F(x) = (1-p) (Phi(z(x)) - Phi(z(lo))) / (Phi(z(xm)) - Phi(z(lo))), z(x) = (ln x - mu) / sigma,
/// and for xm < x <= hi
///   F(x) = 1 - p + p (1 - (xm/x)^alpha) / (1 - (xm/hi)^alpha).
struct TwoPieceLaw {
  double mu = 0;     ///< mean of ln(tokens) of the body
  double sigma = 1;  ///< its standard deviation
  double xm = 0;     ///< tokens where the tail begins
  double alpha = 1;  ///< exponent of the tail
  double p = 0;      ///< probability of the tail, in [0, 1)
  double lo = 1;     ///< shortest length in tokens
  double hi = 0;     ///< longest length in tokens
};

/// Cumulative share of documents up to a length; lengths are log-uniform between two points.
struct BinnedLaw {
  double lo = 1;  ///< shortest length in tokens
  struct Bin {
    double upto;        ///< tokens, increasing
    double cumulative;  ///< share of documents of at most `upto` tokens, increasing to 1
  };
  std::vector<Bin> bins;
};

/// Draws `count` lengths; the same seed gives the same lengths on every machine. Throws InputError
/// for parameters outside the law's domain.
LengthTrace synthesize(const TwoPieceLaw& law, std::uint64_t count, std::uint64_t seed);
LengthTrace synthesize(const BinnedLaw& law, std::uint64_t count, std::uint64_t seed);

/// A preset fitted to a published distribution.
struct SynthPreset {
  std::string name;
  std::string description;
};
std::vector<SynthPreset> synth_presets();

/// The law behind "commoncrawl", "github" or "wikipedia".
TwoPieceLaw preset_law(const std::string& name);

/// Draws from a preset by name: "commoncrawl", "github", "wikipedia" or "longmix".
LengthTrace synthesize_preset(const std::string& name, std::uint64_t count, std::uint64_t seed);

}  // namespace hydraulis
