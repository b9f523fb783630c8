#include <cmath>
#include <cstdint>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

namespace hydraulis::cpu {
namespace {

/// The constants of a step in the matrices' type.
template <typename T>
struct Adam {
  explicit Adam(const OptimizerStep& step)
      : gradient_scale(static_cast<T>(step.gradient_scale)),
        beta1(static_cast<T>(step.beta1)),
        rest1(static_cast<T>(1 - step.beta1)),
        beta2(static_cast<T>(step.beta2)),
        rest2(static_cast<T>(1 - step.beta2)),
        correction1(static_cast<T>(1 / (1 - std::pow(step.beta1, static_cast<double>(step.step))))),
        correction2(static_cast<T>(1 / (1 - std::pow(step.beta2, static_cast<double>(step.step))))),
        epsilon(static_cast<T>(step.epsilon)) {}

  /// Advances both moments and returns the direction m̂ / (√v̂ + ε).
  T advance(T gradient, T& first_moment, T& second_moment) const {
    const T g = gradient * gradient_scale;
    first_moment = beta1 * first_moment + rest1 * g;
    second_moment = beta2 * second_moment + rest2 * (g * g);
    return first_moment * correction1 / (std::sqrt(second_moment * correction2) + epsilon);
  }

  T gradient_scale, beta1, rest1, beta2, rest2, correction1, correction2, epsilon;
};

}  // namespace

template <typename T>
void adamw(int threads, const OptimizerStep& settings, std::int64_t count, const T* gradient,
           T* parameter, T* first_moment, T* second_moment) {
  const Adam<T> adam(settings);
  const T rate = static_cast<T>(settings.learning_rate);
  const T decay = static_cast<T>(settings.learning_rate * settings.weight_decay);
  parallel_rows(threads, count, 4, [&](Range range) {
#pragma omp simd
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const T direction = adam.advance(gradient[i], first_moment[i], second_moment[i]);
      parameter[i] -= rate * direction + decay * parameter[i];
    }
  });
}

template <typename T>
void lamb_direction(int threads, const OptimizerStep& settings, std::int64_t count,
                    const T* gradient, const T* parameter, T* first_moment, T* second_moment,
                    T* update) {
  const Adam<T> adam(settings);
  const T decay = static_cast<T>(settings.weight_decay);
  parallel_rows(threads, count, 4, [&](Range range) {
#pragma omp simd
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const T direction = adam.advance(gradient[i], first_moment[i], second_moment[i]);
      update[i] = direction + decay * parameter[i];
    }
  });
}

#define HYDRAULIS_INSTANTIATE(T)                                                                   \
  template void adamw<T>(int, const OptimizerStep&, std::int64_t, const T*, T*, T*, T*);           \
  template void lamb_direction<T>(int, const OptimizerStep&, std::int64_t, const T*, const T*, T*, \
                                  T*, T*);
HYDRAULIS_INSTANTIATE(float)
HYDRAULIS_INSTANTIATE(double)
#undef HYDRAULIS_INSTANTIATE

}  // namespace hydraulis::cpu
