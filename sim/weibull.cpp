#include "sim/weibull.h"

#include <array>

#include "traces/portable_math.h"

namespace hydraulis {

double gamma_function(double x) {
  constexpr double kG = 7;
  constexpr std::array kCoefficients = {
      0.99999999999980993,  676.5203681218851,     -1259.1392167224028,
      771.32342877765313,   -176.61502916214059,   12.507343278686905,
      -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7};
  constexpr double kRootOfTwoPi = 2.5066282746310002;
  const double y = x - 1;
  double sum = kCoefficients[0];
  for (std::size_t i = 1; i < kCoefficients.size(); ++i) {
    sum += kCoefficients[i] / (y + static_cast<double>(i));
  }
  const double t = y + kG + 0.5;
  return kRootOfTwoPi * portable::pow(t, y + 0.5) * portable::exp(-t) * sum;
}

double weibull(double u, double mean, double shape) {
  const double exponential = -portable::log(1 - u);
  if (shape == 1 || exponential <= 0) return mean * exponential;
  return mean / gamma_function(1 + 1 / shape) * portable::pow(exponential, 1 / shape);
}

}  // namespace hydraulis
