#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/communicator.h"
#include "kernels/cuda/compute.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/process.h"

namespace hydraulis::cuda {

namespace {

template <std::size_t n>
void set_text(char (&to)[n], const std::string& text) {
  text.copy(to, n - 1);
}

/// The GPU's number for this process, in `number`.
RankDevice own_device(const CpuProcess& host, int& number) {
  RankDevice own;
  gethostname(own.node, sizeof own.node - 1);
  own.node_rank = host.node_rank;
  own.node_ranks = host.node_ranks;
  int devices = 0;
  cudaError_t error = cudaGetDeviceCount(&devices);
  // A launcher may show each rank a GPU of its own.
  number = devices > 0 ? host.node_rank % devices : 0;
  cudaDeviceProp properties;
  if (error == cudaSuccess && devices > 0) error = cudaGetDeviceProperties(&properties, number);
  if (error != cudaSuccess) {
    set_text(own.trouble, cudaGetErrorString(error));
    return own;
  }
  own.devices = devices;
  if (devices > 0) std::memcpy(own.identity, properties.uuid.bytes, sizeof own.identity);
  return own;
}

std::vector<RankDevice> all_devices(const CpuProcess& host, const RankDevice& own) {
  static_assert(sizeof(RankDevice) % 4 == 0);
  std::vector<RankDevice> all(static_cast<std::size_t>(host.world->size()));
  const auto stream = host.device->make_stream();
  host.world->all_gather(&own, all.data(), sizeof(RankDevice) / 4, DataType::f32, *stream);
  host.device->synchronize(*stream);
  return all;
}

}  // namespace

void check_devices(std::span<const RankDevice> ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const RankDevice& rank = ranks[r];
    if (rank.devices == 0) {
      throw InputError("rank {} on node {}: CUDA finds no GPU{}{}", r, rank.node,
                       rank.trouble[0] != 0 ? ": " : "", rank.trouble);
    }
    const auto shares = [&](const RankDevice& other) {
      return std::memcmp(other.identity, rank.identity, sizeof rank.identity) == 0;
    };
    const auto first = std::find_if(ranks.begin(), ranks.end(), shares);
    const auto other = static_cast<std::size_t>(first - ranks.begin());
    if (other == r) continue;
    throw InputError(
        "node {}: {} ranks and {} GPU{}; ranks {} and {} would share one, and each needs its own: "
        "start at most {} a node (mpirun --map-by ppr:{}:node, srun --ntasks-per-node={})",
        rank.node, rank.node_ranks, rank.devices, rank.devices == 1 ? "" : "s", other, r,
        rank.devices, rank.devices, rank.devices);
  }
}

Gpu start_gpu(const CpuProcess& host, std::int64_t memory_limit_bytes) {
  int number = 0;
  const RankDevice own = own_device(host, number);
  check_devices(all_devices(host, own));
  Gpu gpu;
  gpu.device = make_device(number, memory_limit_bytes);
  gpu.stream = gpu.device->make_stream();
  gpu.compute = make_compute(*gpu.device);
  // Borrowed, not owned.
  const std::shared_ptr<Communicator> hosts(std::shared_ptr<void>(), host.world.get());
  gpu.world = make_communicator(*gpu.device, *host.device, hosts);
  return gpu;
}

}  // namespace hydraulis::cuda
