#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/kernels/compute_fixture.h"

namespace hydraulis {

/// Adam with decoupled decay, element by element in double precision.
class OptimizerReference {
 public:
  OptimizerReference(const Data<double>& parameter, const Data<double>& first,
                     const Data<double>& second)
      : p(row_of(parameter)), m(row_of(first)), v(row_of(second)) {}

  /// The moments advance and the directions, decay included, are returned; outside the stretches
  /// nothing moves.
  std::vector<double> advance(const OptimizerStep& settings,
                              const std::vector<OptimizerStretch>& stretches,
                              const Data<double>& gradient) {
    const double correction1 = 1 - std::pow(settings.beta1, static_cast<double>(settings.step));
    const double correction2 = 1 - std::pow(settings.beta2, static_cast<double>(settings.step));
    std::vector<double> directions(p.size(), 0);
    for (const OptimizerStretch& s : stretches) {
      for (auto i = static_cast<std::size_t>(s.begin);
           i < static_cast<std::size_t>(s.begin + s.count); ++i) {
        const double g = settings.gradient_scale * gradient.at(0, static_cast<std::int64_t>(i));
        m[i] = settings.beta1 * m[i] + (1 - settings.beta1) * g;
        v[i] = settings.beta2 * v[i] + (1 - settings.beta2) * g * g;
        directions[i] = m[i] / correction1 / (std::sqrt(v[i] / correction2) + settings.epsilon) +
                        (s.decays ? settings.weight_decay * p[i] : 0);
      }
    }
    return directions;
  }
  /// parameter −= rates[stretch]·direction.
  void apply(const std::vector<OptimizerStretch>& stretches, const std::vector<double>& rates,
             const std::vector<double>& directions) {
    for (std::size_t n = 0; n < stretches.size(); ++n) {
      for (std::int64_t i = stretches[n].begin; i < stretches[n].begin + stretches[n].count; ++i) {
        p[static_cast<std::size_t>(i)] -= rates[n] * directions[static_cast<std::size_t>(i)];
      }
    }
  }

  std::vector<double> p, m, v;

 private:
  static std::vector<double> row_of(const Data<double>& data) {
    return {data.memory.begin(), data.memory.begin() + data.columns()};
  }
};

/// Tensors of unlike sizes in [0, elements): every third does not decay, some are empty, and there
/// are gaps; no size or place divides by a pack.
inline std::vector<OptimizerStretch> uneven_stretches(std::int64_t elements) {
  std::vector<OptimizerStretch> stretches;
  std::int64_t begin = 1;
  for (std::int64_t i = 0; begin < elements; ++i) {
    const std::int64_t wanted = i % 4 == 3 ? 0 : i % 4 == 1 ? elements / 3 : 3 + 5 * i;
    const std::int64_t count = std::min(wanted, elements - begin);
    stretches.push_back({begin, count, i % 3 != 2});
    begin += count + i % 2;
  }
  return stretches;
}

/// A function of element numbers from the elements of a vector.
inline std::function<double(std::int64_t, std::int64_t)> elements_of(
    const std::vector<double>& values) {
  return [&values](std::int64_t, std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
}

}  // namespace hydraulis
