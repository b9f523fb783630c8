#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/communicator.h"
#include "kernels/compute.h"
#include "kernels/device.h"

namespace hydraulis::cuda {

/// What a rank found on its node.
struct RankDevice {
  char node[64] = {};      ///< host name
  char identity[16] = {};  ///< of the GPU that it takes, the same nowhere else
  char trouble[64] = {};   ///< why CUDA finds no GPU, if that is so
  std::int32_t node_rank = 0;
  std::int32_t node_ranks = 1;
  std::int32_t devices = 0;  ///< that it sees
};

/// Throws InputError, naming the node, where a rank has no GPU or shares one with another. By rank.
void check_devices(std::span<const RankDevice> ranks);

/// What a process of the CUDA backend has beside its CPU side.
struct Gpu {
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;  ///< the device's first
  std::unique_ptr<Compute> compute;
  std::unique_ptr<Communicator> world;  ///< of device memory
};

/// Takes the GPU that this process's place on its node gives it and joins the others by NCCL, whose
/// identifiers travel by `host`, which must outlive the result. All ranks call it together, and
/// throw the same InputError when there is not a GPU for each; CommunicationError when one does not
/// come in time. `memory_limit_bytes` 0: what the device has.
Gpu start_gpu(const CpuProcess& host, std::int64_t memory_limit_bytes);

}  // namespace hydraulis::cuda
