#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

// kTeam threads share a row: a warp for short rows (heads), the whole block for long ones.
namespace hydraulis::cuda {

namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kWarpColumns = 1024;  // longer rows take a block

template <typename T, int kCount, int kTeam>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(View<const T> x, const T* weight, float epsilon, std::int64_t rows,
                   std::int64_t columns, View<T> y, View<float> inverse_rms) {
  constexpr int kTeams = kThreads / kTeam;
  const int member = static_cast<int>(threadIdx.x) % kTeam;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kTeams + threadIdx.x / kTeam; i < rows;
       i += std::int64_t{gridDim.x} * kTeams) {
    const T* from = x.row(i);
    float squares = 0;
    for (std::int64_t j = member * kCount; j < columns; j += kTeam * kCount) {
      const Floats<kCount> values = load<kCount>(from + j);
#pragma unroll
      for (int u = 0; u < kCount; ++u) squares += values.value[u] * values.value[u];
    }
    squares = reduce<kTeam, Sum>(squares);
    const float inverse = 1.0F / sqrtf(squares / static_cast<float>(columns) + epsilon);
    if (member == 0) *inverse_rms.row(i) = inverse;
    for (std::int64_t j = member * kCount; j < columns; j += kTeam * kCount) {
      Floats<kCount> values = load<kCount>(from + j);
      const Floats<kCount> w = load<kCount>(weight + j);
#pragma unroll
      for (int u = 0; u < kCount; ++u) values.value[u] *= inverse * w.value[u];
      store(y.row(i) + j, values);
    }
  }
}

/// Packs of the weight's gradient that a thread sums in registers; longer rows are gone through
/// several times.
constexpr int kOwnPacks = 4;
/// Blocks of the backward that a multiprocessor is to hold: as many as leave no register to be
/// spilled.
template <typename T>
constexpr int kBackwardBlocks = sizeof(T) == 2 ? 2 : 1;

/// Team p takes the p-th part of the rows and leaves its sum of the weight's gradient in row p of
/// `partial`. dx may be dy: a row's sum is taken before any of it is written, and kept in `along`.
template <typename T, int kCount, int kTeam>
__global__ void __launch_bounds__(kThreads, kBackwardBlocks<T>)
    backward_kernel(View<const T> dy, View<const T> x, const T* weight, View<const float> inverses,
                    bool accumulate, std::int64_t rows, std::int64_t columns, View<T> dx,
                    float* partial, float* along) {
  constexpr int kTeams = kThreads / kTeam;
  constexpr std::int64_t kOwnColumns = std::int64_t{kOwnPacks} * kTeam * kCount;
  const int member = static_cast<int>(threadIdx.x) % kTeam;
  const std::int64_t team = std::int64_t{blockIdx.x} * kTeams + threadIdx.x / kTeam;
  const std::int64_t teams = std::int64_t{gridDim.x} * kTeams;
  const std::int64_t share = (rows + teams - 1) / teams;
  const std::int64_t end = (team + 1) * share < rows ? (team + 1) * share : rows;
  for (std::int64_t base = 0; base < columns; base += kOwnColumns) {
    const std::int64_t first = base + member * kCount;
    Floats<kCount> sums[kOwnPacks] = {};
    for (std::int64_t i = team * share; i < end; ++i) {
      const T* gradient = dy.row(i);
      const T* from = x.row(i);
      const float inverse = *inverses.row(i);
      float part = 0;
      if (base == 0) {
        float product = 0;
        for (std::int64_t j = member * kCount; j < columns; j += kTeam * kCount) {
          const Floats<kCount> g = load<kCount>(gradient + j);
          const Floats<kCount> v = load<kCount>(from + j);
          const Floats<kCount> w = load<kCount>(weight + j);
#pragma unroll
          for (int u = 0; u < kCount; ++u) product += g.value[u] * w.value[u] * v.value[u];
        }
        product = reduce<kTeam, Sum>(product);
        part = product * inverse * inverse / static_cast<float>(columns);
        if (member == 0) along[i] = part;
      } else {
        part = along[i];
      }
#pragma unroll
      for (int p = 0; p < kOwnPacks; ++p) {
        const std::int64_t j = first + std::int64_t{p} * kTeam * kCount;
        if (j >= columns) continue;
        const Floats<kCount> g = load<kCount>(gradient + j);
        const Floats<kCount> v = load<kCount>(from + j);
        const Floats<kCount> w = load<kCount>(weight + j);
        T* to = dx.row(i) + j;
        Floats<kCount> result = {};
        if (accumulate) result = load<kCount>(to);
#pragma unroll
        for (int u = 0; u < kCount; ++u) {
          sums[p].value[u] += g.value[u] * v.value[u] * inverse;
          result.value[u] += (g.value[u] * w.value[u] - v.value[u] * part) * inverse;
        }
        store(to, result);
      }
    }
#pragma unroll
    for (int p = 0; p < kOwnPacks; ++p) {
      const std::int64_t j = first + std::int64_t{p} * kTeam * kCount;
      if (j < columns) store(partial + team * columns + j, sums[p]);
    }
    __syncthreads();  // the next columns read what `along` keeps
  }
}

template <typename G>
struct AddPartials {
  const float* partial;
  std::int64_t parts, columns;
  G* dweight;
  template <int kCount>
  __device__ void at(std::int64_t, std::int64_t j) const {
    static_assert(kCount == 1);
    const float* own = partial + j;
    float sum = 0;
    for (std::int64_t p = 0; p < parts; ++p, own += columns) sum += *own;
    G* const to = dweight + j;
    from_float(to_float(*to) + sum, *to);
  }
};

/// call.operator()<kTeam>() for rows of so many columns.
template <typename Call>
void with_team(std::int64_t columns, Call call) {
  if (columns <= kWarpColumns) {
    call.template operator()<32>();
  } else {
    call.template operator()<kThreads>();
  }
}

/// Blocks of the backward: few enough that adding up their sums costs little.
std::int64_t backward_blocks(std::int64_t rows, int teams) {
  const std::int64_t rows_of_a_team = 16;
  return std::clamp<std::int64_t>((rows + rows_of_a_team * teams - 1) / (rows_of_a_team * teams), 1,
                                  512);
}

std::int64_t backward_parts(std::int64_t rows, std::int64_t columns) {
  const int teams = columns <= kWarpColumns ? kThreads / 32 : 1;
  return backward_blocks(rows, teams) * teams;
}

}  // namespace

void rms_norm(ConstMatrix x, ConstMatrix weight, double epsilon, Matrix y, Matrix inverse_rms,
              cudaStream_t stream) {
  if (x.rows == 0) return;
  with_type(x.type, [&]<typename T>() {
    with_packs(packs(8, x.columns, {x, weight, y}), [&]<int kCount>() {
      with_team(x.columns, [&]<int kTeam>() {
        const std::int64_t teams = kThreads / kTeam;
        const auto blocks = std::min<std::int64_t>((x.rows + teams - 1) / teams, 1 << 20);
        launch<forward_kernel<T, kCount, kTeam>>(
            static_cast<unsigned>(blocks), kThreads, 0, stream, view<T>(x), weight.as<T>(),
            static_cast<float>(epsilon), x.rows, x.columns, view<T>(y), view<float>(inverse_rms));
      });
    });
  });
}

std::int64_t rms_norm_workspace_bytes(std::int64_t rows, std::int64_t columns) {
  return (backward_parts(rows, columns) * columns + rows) *
         static_cast<std::int64_t>(sizeof(float));
}

void rms_norm_backward(ConstMatrix dy, ConstMatrix x, ConstMatrix weight, ConstMatrix inverse_rms,
                       bool accumulate, Matrix dx, Matrix dweight, void* workspace,
                       cudaStream_t stream) {
  if (x.rows == 0 || x.columns == 0) return;
  auto* partial = static_cast<float*>(workspace);
  const std::int64_t parts = backward_parts(x.rows, x.columns);
  with_type(x.type, [&]<typename T>() {
    with_packs(packs(8, x.columns, {dy, x, weight, dx}), [&]<int kCount>() {
      with_team(x.columns, [&]<int kTeam>() {
        const std::int64_t blocks = backward_blocks(x.rows, kThreads / kTeam);
        launch<backward_kernel<T, kCount, kTeam>>(
            static_cast<unsigned>(blocks), kThreads, 0, stream, view<T>(dy), view<T>(x),
            weight.as<T>(), view<float>(inverse_rms), accumulate, x.rows, x.columns, view<T>(dx),
            partial, partial + parts * x.columns);
      });
    });
  });
  with_type(dweight.type, [&]<typename G>() {
    map<1>(AddPartials<G>{partial, parts, x.columns, dweight.as<G>()}, 1, x.columns, stream);
  });
}

}  // namespace hydraulis::cuda
