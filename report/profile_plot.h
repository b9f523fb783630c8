#pragma once

#include <functional>
#include <string>
#include <vector>

#include "costmodel/operator_profile.h"

namespace hydraulis {

/// A drawing of points and a curve for a terminal, both axes logarithmic: points "o", the curve
/// "·", where both fall together "•". Points must be positive; at least one.
struct Plot {
  std::string title;
  std::string x;  ///< name and unit
  std::string y;
  std::vector<std::pair<double, double>> points;
  std::function<double(double)> curve;
};
std::string draw(const Plot& plot);

/// Samples against their fit, one drawing for each kernel shape and collective group whose name
/// ("gemm_forward 512→1536", "all_reduce, 2 ranks on 1 node") contains `what`; empty: the largest
/// product, attention and the widest all-reduce. Of attention the single sequences are drawn.
/// Throws InputError when nothing has that name.
std::string profile_plots(const OperatorProfile& profile, const std::string& where,
                          const std::string& what);

}  // namespace hydraulis
