#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/optimizer.cuh"
#include "kernels/cuda/packs.h"
#include "kernels/cuda/reduce.cuh"

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
  float rate;
  const float* gradient;
  float *parameter, *first_moment, *second_moment;
  template <int kCount>
  __device__ void at(std::int64_t i, float decay) const {
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
  const float *gradient, *parameter;
  float *first_moment, *second_moment, *update;
  template <int kCount>
  __device__ void at(std::int64_t i, float decay) const {
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

struct AddScaled {
  const float* x;
  float* y;
  template <int kCount>
  __device__ void at(std::int64_t i, float scale) const {
    Floats<kCount> sum = load<kCount>(y + i);
    const Floats<kCount> more = load<kCount>(x + i);
#pragma unroll
    for (int u = 0; u < kCount; ++u) sum.value[u] += scale * more.value[u];
    store(y + i, sum);
  }
};

constexpr int kThreads = 256;
constexpr int kPack = 4;  // 16 bytes
constexpr std::int64_t kPieceElements = std::int64_t{16} * kThreads * kPack;

/// call.operator()<kCount>(i) over a piece: packs from the first element whose number divides, what
/// is before and behind them one by one.
template <int kCount, typename Call>
__device__ void for_each_pack(const OptimizerPieces::Piece& piece, Call call) {
  const std::int64_t end = piece.begin + piece.count;
  const std::int64_t up = (piece.begin + kCount - 1) / kCount * kCount;
  const std::int64_t first = up < end ? up : end;
  const std::int64_t last = first + (end - first) / kCount * kCount;
  const int thread = static_cast<int>(threadIdx.x);
  if (kCount > 1 && thread < first - piece.begin) call.template operator()<1>(piece.begin + thread);
  for (std::int64_t i = first + std::int64_t{thread} * kCount; i < last;
       i += std::int64_t{kThreads} * kCount) {
    call.template operator()<kCount>(i);
  }
  if (kCount > 1 && thread < end - last) call.template operator()<1>(last + thread);
}

/// operation.at<kCount>(i, factor) over the piece that a block has.
template <typename Operation, int kCount>
__global__ void __launch_bounds__(kThreads)
    pieces_kernel(Operation operation, const OptimizerPieces::Piece* pieces, const float* factors) {
  const OptimizerPieces::Piece piece = pieces[blockIdx.x];
  const float factor = factors[piece.stretch];
  for_each_pack<kCount>(piece,
                        [&]<int kOwn>(std::int64_t i) { operation.template at<kOwn>(i, factor); });
}

template <int kCount>
__global__ void __launch_bounds__(kThreads)
    piece_squares_kernel(const float* x, const OptimizerPieces::Piece* pieces, double* sums) {
  double sum = 0;
  for_each_pack<kCount>(pieces[blockIdx.x], [&]<int kOwn>(std::int64_t i) {
    const Floats<kOwn> values = load<kOwn>(x + i);
#pragma unroll
    for (int u = 0; u < kOwn; ++u) {
      sum += static_cast<double>(values.value[u]) * static_cast<double>(values.value[u]);
    }
  });
  sum = reduce<kThreads, Sum>(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

/// A block for each stretch.
__global__ void __launch_bounds__(kThreads)
    stretch_sums_kernel(const double* of_pieces, const std::int64_t* ends, double* of_stretches) {
  const std::int64_t begin = blockIdx.x == 0 ? 0 : ends[blockIdx.x - 1];
  double sum = 0;
  for (std::int64_t i = begin + threadIdx.x; i < ends[blockIdx.x]; i += kThreads) {
    sum += of_pieces[i];
  }
  sum = reduce<kThreads, Sum>(sum);
  if (threadIdx.x == 0) of_stretches[blockIdx.x] = sum;
}

/// call.operator()<kCount>() with packs where all matrices start at multiples of 16 bytes.
template <typename Call>
void with_pieces(std::initializer_list<ConstMatrix> matrices, Call call) {
  if (packs(kPack, 0, matrices)) {
    call.template operator()<kPack>();
  } else {
    call.template operator()<1>();
  }
}

template <typename Operation>
void over_pieces(const Operation& operation, const PieceList& list,
                 std::initializer_list<ConstMatrix> matrices, cudaStream_t stream) {
  if (list.count == 0) return;
  with_pieces(matrices, [&]<int kCount>() {
    launch<pieces_kernel<Operation, kCount>>(static_cast<unsigned>(list.count), kThreads, 0, stream,
                                             operation, list.pieces, list.factors);
  });
}

}  // namespace

OptimizerPieces optimizer_pieces(std::span<const OptimizerStretch> stretches) {
  OptimizerPieces all;
  for (std::size_t s = 0; s < stretches.size(); ++s) {
    const std::int64_t end = stretches[s].begin + stretches[s].count;
    for (std::int64_t begin = stretches[s].begin; begin < end;) {
      // Cuts where packs end.
      const std::int64_t cut = std::min(end, (begin / kPieceElements + 1) * kPieceElements);
      all.pieces.push_back(
          {begin, static_cast<std::int32_t>(cut - begin), static_cast<std::int32_t>(s)});
      begin = cut;
    }
    all.ends.push_back(static_cast<std::int64_t>(all.pieces.size()));
  }
  return all;
}

void adamw(const OptimizerStep& settings, const PieceList& pieces, ConstMatrix gradient,
           Matrix parameter, Matrix first_moment, Matrix second_moment, cudaStream_t stream) {
  const AdamW step{Adam(settings),           static_cast<float>(settings.learning_rate),
                   gradient.as<float>(),     parameter.as<float>(),
                   first_moment.as<float>(), second_moment.as<float>()};
  over_pieces(step, pieces, {gradient, parameter, first_moment, second_moment}, stream);
}

void lamb_direction(const OptimizerStep& settings, const PieceList& pieces, ConstMatrix gradient,
                    ConstMatrix parameter, Matrix first_moment, Matrix second_moment, Matrix update,
                    cudaStream_t stream) {
  const LambDirection step{
      Adam(settings),           gradient.as<float>(),      parameter.as<float>(),
      first_moment.as<float>(), second_moment.as<float>(), update.as<float>()};
  over_pieces(step, pieces, {gradient, parameter, first_moment, second_moment, update}, stream);
}

void sum_squares(const PieceList& pieces, ConstMatrix x, double* of_pieces, double* of_stretches,
                 cudaStream_t stream) {
  if (pieces.count > 0) {
    with_pieces({x}, [&]<int kCount>() {
      launch<piece_squares_kernel<kCount>>(static_cast<unsigned>(pieces.count), kThreads, 0, stream,
                                           x.as<float>(), pieces.pieces, of_pieces);
    });
  }
  if (pieces.stretches > 0) {
    launch<stretch_sums_kernel>(static_cast<unsigned>(pieces.stretches), kThreads, 0, stream,
                                of_pieces, pieces.ends, of_stretches);
  }
}

void add_scaled(const PieceList& pieces, ConstMatrix x, Matrix y, cudaStream_t stream) {
  over_pieces(AddScaled{x.as<float>(), y.as<float>()}, pieces, {x, y}, stream);
}

}  // namespace hydraulis::cuda
