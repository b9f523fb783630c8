#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/numbers.cuh"

namespace hydraulis::cuda {

namespace {

/// The constants of a step.
struct Adam {
  explicit Adam(const OptimizerStep& step)
      : gradient_scale(static_cast<float>(step.gradient_scale)),
        beta1(static_cast<float>(step.beta1)),
        rest1(static_cast<float>(1 - step.beta1)),
        beta2(static_cast<float>(step.beta2)),
        rest2(static_cast<float>(1 - step.beta2)),
        correction1(
            static_cast<float>(1 / (1 - std::pow(step.beta1, static_cast<double>(step.step))))),
        correction2(
            static_cast<float>(1 / (1 - std::pow(step.beta2, static_cast<double>(step.step))))),
        epsilon(static_cast<float>(step.epsilon)) {}

  /// Advances both moments and returns the direction.
  __device__ float advance(float gradient, float& first_moment, float& second_moment) const {
    const float g = gradient * gradient_scale;
    first_moment = beta1 * first_moment + rest1 * g;
    second_moment = beta2 * second_moment + rest2 * (g * g);
    return first_moment * correction1 / (sqrtf(second_moment * correction2) + epsilon);
  }

  float gradient_scale, beta1, rest1, beta2, rest2, correction1, correction2, epsilon;
};

struct AdamW {
  Adam adam;
  float rate, decay;
  const float* gradient;
  float *parameter, *first_moment, *second_moment;
  template <int kCount>
  __device__ void at(std::int64_t, std::int64_t i) const {
    const Floats<kCount> g = load<kCount>(gradient + i);
    Floats<kCount> p = load<kCount>(parameter + i);
    Floats<kCount> m = load<kCount>(first_moment + i);
    Floats<kCount> v = load<kCount>(second_moment + i);
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      const float direction = adam.advance(g.value[u], m.value[u], v.value[u]);
      p.value[u] -= rate * direction + decay * p.value[u];
    }
    store(parameter + i, p);
    store(first_moment + i, m);
    store(second_moment + i, v);
  }
};

struct LambDirection {
  Adam adam;
  float decay;
  const float *gradient, *parameter;
  float *first_moment, *second_moment, *update;
  template <int kCount>
  __device__ void at(std::int64_t, std::int64_t i) const {
    const Floats<kCount> g = load<kCount>(gradient + i);
    const Floats<kCount> p = load<kCount>(parameter + i);
    Floats<kCount> m = load<kCount>(first_moment + i);
    Floats<kCount> v = load<kCount>(second_moment + i);
    Floats<kCount> result;
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      result.value[u] = adam.advance(g.value[u], m.value[u], v.value[u]) + decay * p.value[u];
    }
    store(first_moment + i, m);
    store(second_moment + i, v);
    store(update + i, result);
  }
};

}  // namespace

void adamw(const OptimizerStep& settings, ConstMatrix gradient, Matrix parameter,
           Matrix first_moment, Matrix second_moment, cudaStream_t stream) {
  const AdamW step{Adam(settings),
                   static_cast<float>(settings.learning_rate),
                   static_cast<float>(settings.learning_rate * settings.weight_decay),
                   gradient.as<float>(),
                   parameter.as<float>(),
                   first_moment.as<float>(),
                   second_moment.as<float>()};
  const std::int64_t count = parameter.columns;
  with_packs(packs(8, count, {gradient, parameter, first_moment, second_moment}),
             [&]<int kCount>() { map<kCount>(step, 1, count, stream); });
}

void lamb_direction(const OptimizerStep& settings, ConstMatrix gradient, ConstMatrix parameter,
                    Matrix first_moment, Matrix second_moment, Matrix update, cudaStream_t stream) {
  const LambDirection step{Adam(settings),           static_cast<float>(settings.weight_decay),
                           gradient.as<float>(),     parameter.as<float>(),
                           first_moment.as<float>(), second_moment.as<float>(),
                           update.as<float>()};
  const std::int64_t count = parameter.columns;
  with_packs(packs(8, count, {gradient, parameter, first_moment, second_moment, update}),
             [&]<int kCount>() { map<kCount>(step, 1, count, stream); });
}

}  // namespace hydraulis::cuda
