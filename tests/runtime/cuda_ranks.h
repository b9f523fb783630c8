#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "kernels/cpu/device.h"
#include "kernels/cuda/communicator.h"
#include "kernels/cuda/compute.h"
#include "kernels/cuda/device.h"
#include "tests/cuda_emulator/thread_ranks.h"
#include "tests/runtime/training_run.h"

// Training on the CUDA backend in the emulator, its ranks threads.
namespace hydraulis::test {

/// As small as a layout allows, since every thread of every kernel is emulated: heads that the
/// attention kernels take, else awkward: a vocabulary and feed-forward channels that tp divides
/// unevenly, fewer key/value heads than tp.
inline DecoderSpec tiny_decoder(const Layout& layout) {
  int layers = 1;
  int heads = 2;
  for (const Scheme& s : layout.schemes) {
    layers = std::max(layers, s.pp);
    heads = std::max(heads, s.tp);
  }
  DecoderSpec decoder;
  decoder.shape = {"tiny", layers, 64, 42, heads, heads / 2, 64, 97, false, false, false};
  decoder.initializer_range = 0.1;
  return decoder;
}

/// What a rank that is a thread has.
struct CudaRank {
  explicit CudaRank(std::shared_ptr<Communicator> host_world)
      : hosts(std::move(host_world)),
        host(cpu::make_device(1, 0)),
        device(cuda::make_device(0)),
        stream(device->make_stream()),
        compute(cuda::make_compute(*device)),
        host_compute(make_cpu_compute(*host)),
        world(cuda::make_communicator(*device, *host, hosts)) {}
  Backend backend() const {
    return {device.get(), compute.get(), world.get(),       DataType::bf16,
            hosts.get(),  stream.get(),  host_compute.get()};
  }
  std::shared_ptr<Communicator> hosts;
  std::unique_ptr<Device> host;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Compute> compute;
  std::unique_ptr<Compute> host_compute;
  std::unique_ptr<Communicator> world;
};

}  // namespace hydraulis::test
