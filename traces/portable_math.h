#pragma once

namespace hydraulis::portable {

// Elementary functions built from + - * / and bit operations alone, so that IEEE arithmetic gives
// the same bits on every machine; the C library's results differ in the last place between
// versions, and one bit is enough to change a generated length. Accurate to about 1e-15 relative
// unless noted.

/// e^x; 0 below about -708, infinity above about 709.
double exp(double x);
/// Natural logarithm; x must be a positive normal number.
double log(double x);
/// x^y for positive x.
double pow(double x, double y);
/// Distribution function of the standard normal law, relative accuracy 1e-14 in the lower tail.
double normal_cdf(double z);
/// Its inverse, for 0 < p < 1.
double normal_quantile(double p);

}  // namespace hydraulis::portable
