#include "traces/synth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/random.h"
#include "traces/portable_math.h"

namespace hydraulis {
namespace {

constexpr double kLongest = 4294967295.0;

void require(bool ok, const char* field, double value, const char* expected) {
  if (!ok) throw InputError("synthetic trace: {} is {}, expected {}", field, value, expected);
}

void check(const TwoPieceLaw& law) {
  require(std::isfinite(law.mu) && std::abs(law.mu) <= 50, "mu", law.mu, "a number in [-50, 50]");
  require(law.sigma > 0 && law.sigma <= 50, "sigma", law.sigma, "more than 0 and at most 50");
  require(law.lo >= 1 && law.lo < kLongest, "lo", law.lo, "at least 1 token");
  require(law.xm > law.lo && law.xm <= kLongest, "xm", law.xm, "more than lo");
  require(law.p >= 0 && law.p < 1, "p", law.p, "a share in [0, 1)");
  require(law.alpha > 0 && law.alpha <= 100, "alpha", law.alpha, "more than 0 and at most 100");
  require(law.hi <= kLongest && (law.p == 0 || law.hi > law.xm), "hi", law.hi,
          "more than xm and below 2^32");
}

void check_count(std::uint64_t count) {
  if (count == 0 || count > std::numeric_limits<std::uint32_t>::max()) {
    throw InputError("synthetic trace: number of documents is {}, expected 1 to {}", count,
                     std::numeric_limits<std::uint32_t>::max());
  }
}

std::uint32_t to_length(double x) {
  return static_cast<std::uint32_t>(std::clamp(x, 1.0, kLongest));
}

TwoPieceLaw find_law(const std::string& name, bool& found) {
  found = true;
  // Fitted to RefinedWeb's and FineWeb's published quantiles (cards and ProLong's table 14).
  if (name == "commoncrawl") return {5.6183, 1.0957, 1006, 1.7050, 0.1234, 40, 160000};
  // Body of real source files in github-code's language mix; tail exponent from ByteScale's 16.2 %
  // of tokens in sequences above 128K.
  if (name == "github") return {6.6572, 1.6067, 37295, 1.3163, 0.0124, 1, 733287};
  // Fitted to the Wikipedia length list of Hetu-Galvatron (Apache-2.0); off by up to 9 % at p75.
  if (name == "wikipedia") return {5.7780, 1.0326, 2833, 1.6918, 0.0860, 1, 262144};
  found = false;
  return {};
}

/// Length histogram of a pre-training mix of 13.5 million documents published by MagiAttention
/// (Apache-2.0); the three lowest points are quantiles of the same histogram.
BinnedLaw longmix_law() {
  BinnedLaw law;
  law.lo = 1;
  law.bins = {{16, 0.01},      {112, 0.10},      {247, 0.25},   {500, 0.467},   {1024, 0.714},
              {2048, 0.870},   {4096, 0.944},    {8192, 0.974}, {16384, 0.987}, {32768, 0.9956},
              {65536, 0.9970}, {131072, 0.9986}, {196608, 1.0}};
  return law;
}

}  // namespace

LengthTrace synthesize(const TwoPieceLaw& law, std::uint64_t count, std::uint64_t seed) {
  check(law);
  check_count(count);
  const double z_lo = (portable::log(law.lo) - law.mu) / law.sigma;
  const double z_xm = (portable::log(law.xm) - law.mu) / law.sigma;
  // A law that begins at one token has its whole lower tail in the body, as published.
  const double below = law.lo == 1 ? 0 : portable::normal_cdf(z_lo);
  const double body = portable::normal_cdf(z_xm) - below;
  require(body > 1e-300, "mu", law.mu, "a body with some probability between lo and xm");
  const double tail = law.p > 0 ? 1 - portable::pow(law.xm / law.hi, law.alpha) : 0;

  LengthTrace trace;
  trace.lengths.reserve(count);
  Random random(seed);
  for (std::uint64_t i = 0; i < count; ++i) {
    const double u = random.uniform();
    double x = 0;
    if (u < 1 - law.p) {
      const double q = below + body * (u / (1 - law.p));
      x = q <= 0 ? law.lo
                 : portable::exp(law.mu +
                                 law.sigma * portable::normal_quantile(std::min(q, 1 - 0x1.0p-53)));
      x = std::clamp(x, law.lo, law.xm);
    } else {
      const double v = (u - 1 + law.p) / law.p * tail;
      x = std::clamp(law.xm * portable::pow(1 - v, -1 / law.alpha), law.xm, law.hi);
    }
    trace.lengths.push_back(to_length(x));
  }
  trace.source = fmt::format(
      "synthetic: log-normal body (mu {}, sigma {}) to {} tokens, Pareto tail (alpha {}, share "
      "{}), "
      "{} to {} tokens; seed {}",
      law.mu, law.sigma, law.xm, law.alpha, law.p, law.lo, law.hi, seed);
  trace.tokenizer = "synthetic";
  return trace;
}

LengthTrace synthesize(const BinnedLaw& law, std::uint64_t count, std::uint64_t seed) {
  check_count(count);
  require(law.lo >= 1 && law.lo <= kLongest, "lo", law.lo, "at least 1 token");
  require(!law.bins.empty(), "number of bins", 0, "at least 1");
  double upto = law.lo;
  double cumulative = 0;
  for (const auto& bin : law.bins) {
    require(bin.upto > upto && bin.upto <= kLongest, "bin edge", bin.upto, "increasing edges");
    require(bin.cumulative >= cumulative && bin.cumulative <= 1, "cumulative share", bin.cumulative,
            "shares increasing to 1");
    upto = bin.upto;
    cumulative = bin.cumulative;
  }
  require(cumulative == 1, "last cumulative share", cumulative, "1");

  LengthTrace trace;
  trace.lengths.reserve(count);
  Random random(seed);
  for (std::uint64_t i = 0; i < count; ++i) {
    const double u = random.uniform();
    std::size_t at = 0;
    while (u >= law.bins[at].cumulative) ++at;
    const double low = at == 0 ? law.lo : law.bins[at - 1].upto;
    const double begin = at == 0 ? 0 : law.bins[at - 1].cumulative;
    const double share = (u - begin) / (law.bins[at].cumulative - begin);
    trace.lengths.push_back(to_length(low * portable::pow(law.bins[at].upto / low, share)));
  }
  trace.source = fmt::format("synthetic: histogram of {} bins, log-uniform inside a bin; seed {}",
                             law.bins.size(), seed);
  trace.tokenizer = "synthetic";
  return trace;
}

std::vector<SynthPreset> synth_presets() {
  return {{"commoncrawl", "web pages: fitted to published RefinedWeb and FineWeb quantiles"},
          {"github", "source files: github-code's language mix, ByteScale's tail"},
          {"wikipedia", "encyclopedia articles: fitted to Hetu-Galvatron's length list"},
          {"longmix", "pre-training mix with books and papers: MagiAttention's histogram"}};
}

TwoPieceLaw preset_law(const std::string& name) {
  bool found = false;
  const TwoPieceLaw law = find_law(name, found);
  if (!found) {
    throw InputError("preset '{}' has no two-piece law, expected commoncrawl, github or wikipedia",
                     name);
  }
  return law;
}

LengthTrace synthesize_preset(const std::string& name, std::uint64_t count, std::uint64_t seed) {
  bool found = false;
  const TwoPieceLaw law = find_law(name, found);
  if (!found && name != "longmix") {
    std::string names;
    for (const auto& preset : synth_presets()) names += (names.empty() ? "" : ", ") + preset.name;
    throw InputError("no synthetic preset named '{}', expected one of {}", name, names);
  }
  LengthTrace trace = found ? synthesize(law, count, seed) : synthesize(longmix_law(), count, seed);
  trace.source = name + " (" + trace.source + ")";
  for (const auto& preset : synth_presets()) {
    if (preset.name == name) trace.origin = preset.description;
  }
  return trace;
}

}  // namespace hydraulis
