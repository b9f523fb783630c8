#include "traces/portable_math.h"

#include <bit>
#include <cstdint>
#include <limits>

namespace hydraulis::portable {
namespace {

// ln 2 in two parts; the first has enough zero bits at its end for k * kLn2High to be exact.
constexpr double kLn2High = 0x1.62e42fee00000p-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kInverseSqrt2Pi = 0.39894228040143267794;

double density(double z) { return kInverseSqrt2Pi * exp(-0.5 * z * z); }

/// Probability below -z for z >= 2: Laplace's continued fraction, evaluated from the far end. The
/// number of terms falls with z as the fraction converges faster.
double lower_tail(double z) {
  const int terms = 12 + static_cast<int>(500 / (z * z));
  double fraction = z;
  for (int n = terms; n >= 1; --n) fraction = z + n / fraction;
  return density(z) / fraction;
}

}  // namespace

double exp(double x) {
  if (x != x) return x;
  if (x < -708) return 0;
  if (x > 709) return std::numeric_limits<double>::infinity();
  constexpr double kInverseLn2 = 1.4426950408889634074;
  const double scaled = x * kInverseLn2;
  const auto k = static_cast<std::int64_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
  const double whole = static_cast<double>(k);
  const double r = (x - whole * kLn2High) - whole * kLn2Low;  // |r| <= ln(2) / 2
  double sum = 1;
  for (int n = 15; n >= 1; --n) sum = 1 + r * sum / n;
  // k can reach 1023 only with sum < 2, so the exponent field stays in range.
  return sum * std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
}

double log(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  auto exponent = static_cast<std::int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffULL) | (std::uint64_t{1023} << 52));
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  // ln m = 2 artanh(f), |f| < 0.172.
  const double f = (m - 1) / (m + 1);
  const double f2 = f * f;
  double sum = 0;
  for (int n = 25; n >= 3; n -= 2) sum = f2 * (sum + 1.0 / n);
  const double whole = static_cast<double>(exponent);
  return whole * kLn2High + (2 * f + (2 * f * sum + whole * kLn2Low));
}

double pow(double x, double y) { return exp(y * log(x)); }

double normal_cdf(double z) {
  if (z <= -2) return z < -38 ? 0 : lower_tail(-z);
  if (z >= 2) return z > 38 ? 1 : 1 - lower_tail(z);
  // Phi(z) = 1/2 + density(z) (z + z^3/3 + z^5/(3*5) + ...): all terms of one sign.
  double term = z;
  double sum = z;
  for (int n = 3; n < 90; n += 2) {
    term *= z * z / n;
    sum += term;
  }
  return 0.5 + density(z) * sum;
}

double normal_quantile(double p) {
  if (p == 0.5) return 0;
  const double tail = p < 0.5 ? p : 1 - p;
  // First guess good to 5e-4 (Abramowitz and Stegun, formula 26.2.23), then Halley steps, each of
  // which cubes the error.
  const double minus_log = -2 * log(tail);
  const double t = exp(0.5 * log(minus_log));
  double z = -(t - (2.515517 + 0.802853 * t + 0.010328 * t * t) /
                       (1 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t * t * t));
  for (int step = 0; step < 3; ++step) {
    const double error = (normal_cdf(z) - tail) / density(z);
    z -= error / (1 + 0.5 * z * error);
  }
  return p < 0.5 ? z : -z;
}

}  // namespace hydraulis::portable
