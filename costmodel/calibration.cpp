#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "costmodel/analytic.h"
#include "costmodel/presets/profiles.h"

namespace hydraulis::detail {
namespace {

struct Sample {
  IdealTimes ideal;
  double a = 0;
  double b = 0;
  double c = 0;
};

/// The two 32B rows that their own source could barely fit in memory are left out.
bool well_measured(const Profile& profile, const SchemeCoefficients& row) {
  const bool tight = profile.model.name == "llama-32b" && row.scheme.devices() == 2;
  return row.a > 0 && !tight;
}

/// A fitted quadratic term below what the device's peak allows is noise of the fit: short runs say
/// nothing about attention.
bool attention_possible(const Sample& sample) {
  return sample.a > sample.ideal.attention_per_token2;
}

std::vector<Sample> samples() {
  std::vector<Sample> result;
  const ClusterSpec cluster = load_cluster("a800-64");
  for (const char* name : {"a800-llama-7b", "a800-llama-13b", "a800-llama-32b"}) {
    const Profile profile = *profile_preset(name);
    for (const SchemeCoefficients& row : profile.schemes) {
      if (!well_measured(profile, row)) continue;
      result.push_back({ideal_times(profile.model, cluster, row.scheme), row.a, row.b, row.c});
    }
  }
  return result;
}

/// The factor x that minimises the sum of (x·ideal/measured − 1)².
template <typename Ratio>
double fit_one(const std::vector<Sample>& data, Ratio ratio) {
  double sum = 0;
  double squares = 0;
  for (const Sample& sample : data) {
    const double r = ratio(sample);
    sum += r;
    squares += r * r;
  }
  return sum / squares;
}

/// Matrices and communication together: two factors by the normal equations of the relative error.
void fit_linear_part(const std::vector<Sample>& data, Calibration& result) {
  double mm = 0, mc = 0, cc = 0, m1 = 0, c1 = 0;
  for (const Sample& sample : data) {
    const double m = sample.ideal.matrices_per_token / sample.b;
    const double c = sample.ideal.communication_per_token / sample.b;
    mm += m * m;
    mc += m * c;
    cc += c * c;
    m1 += m;
    c1 += c;
  }
  const double determinant = mm * cc - mc * mc;
  result.matrix_factor = (m1 * cc - c1 * mc) / determinant;
  result.communication_factor = (c1 * mm - m1 * mc) / determinant;
}

Calibration fit() {
  const std::vector<Sample> data = samples();
  Calibration result;
  result.rows = static_cast<int>(data.size());
  std::vector<Sample> attention;
  std::copy_if(data.begin(), data.end(), std::back_inserter(attention), attention_possible);
  result.attention_rows = static_cast<int>(attention.size());
  result.attention_factor =
      fit_one(attention, [](const Sample& s) { return s.ideal.attention_per_token2 / s.a; });
  for (const Sample& s : attention) {
    const double a = result.attention_factor * s.ideal.attention_per_token2;
    result.mean_error_a += std::abs(a / s.a - 1) / result.attention_rows;
  }
  result.seconds_per_layer = fit_one(data, [](const Sample& s) { return s.ideal.layers / s.c; });
  fit_linear_part(data, result);
  for (const Sample& s : data) {
    const double b = result.matrix_factor * s.ideal.matrices_per_token +
                     result.communication_factor * s.ideal.communication_per_token;
    const double c = result.seconds_per_layer * s.ideal.layers;
    result.mean_error_b += std::abs(b / s.b - 1) / result.rows;
    result.mean_error_c += std::abs(c / s.c - 1) / result.rows;
  }
  return result;
}

}  // namespace

const Calibration& calibration() {
  static const Calibration fitted = fit();
  return fitted;
}

}  // namespace hydraulis::detail
