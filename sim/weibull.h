#pragma once

namespace hydraulis {

/// The value at which a Weibull law with that mean and shape has the distribution function `u` in
/// [0, 1); shape 1 is the exponential law.
double weibull(double u, double mean, double shape);

/// Γ(x) for x in [1, 11], the same on every machine; relative accuracy 1e-13 (Lanczos, 1964, with
/// g = 7 and nine coefficients).
double gamma_function(double x);

}  // namespace hydraulis
