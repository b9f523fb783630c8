#pragma once

#include <functional>
#include <span>
#include <vector>

namespace hydraulis {

struct PositiveFitOptions {
  /// Pull of a parameter to where it starts, per unit of its logarithm, against one row's error.
  /// Small: it decides only what the rows leave open.
  double prior = 0.1;
  /// Relative error from which a row counts by its size instead of by its square, so that a few
  /// odd measurements do not bend the rest.
  double outlier = 0.05;
  int iterations = 100;
};

/// Parameters > 0 that bring `model` to the measured values: minimises the sum over rows of the
/// Huber loss of ln(model/measured) plus (prior·ln(parameter/start))², by Levenberg–Marquardt in
/// the logarithms, so that no parameter can be negative. `model` returns one positive number a row.
/// Deterministic. `start` and `measured` must be positive.
std::vector<double> fit_positive(
    const std::function<std::vector<double>(std::span<const double>)>& model,
    std::span<const double> measured, std::span<const double> start,
    const PositiveFitOptions& options = {});

}  // namespace hydraulis
