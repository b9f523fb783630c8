#include "runtime/backend/run_backend.h"

#include "base/error.h"

#ifdef HYDRAULIS_WITH_CUDA
#include "kernels/cuda/process.h"
#endif

namespace hydraulis {

/// What the backend borrows from.
struct RunBackend::Parts {
#ifdef HYDRAULIS_WITH_CUDA
  cuda::Gpu gpu;
#endif
  std::unique_ptr<Compute> cpu_compute;
};

void check_backend([[maybe_unused]] const RunConfig& config) {
#ifndef HYDRAULIS_WITH_CUDA
  if (config.device == RunDevice::cuda) {
    throw InputError(
        "{}: field 'device': \"cuda\", and this build has no CUDA backend: build it where nvcc and "
        "NCCL are (-DHYDRAULIS_CUDA=ON)",
        config.file.string());
  }
#endif
}

RunBackend::RunBackend(CpuProcess& host, const RunConfig& config,
                       [[maybe_unused]] std::int64_t memory_limit_bytes)
    : parts_(std::make_unique<Parts>()) {
  check_backend(config);
#ifdef HYDRAULIS_WITH_CUDA
  if (config.device == RunDevice::cuda) {
    parts_->gpu = cuda::start_gpu(host, memory_limit_bytes);
    parts_->cpu_compute = make_cpu_compute(*host.device);
    const cuda::Gpu& gpu = parts_->gpu;
    backend_ = {gpu.device.get(), gpu.compute.get(), gpu.world.get(),          config.type,
                host.world.get(), gpu.stream.get(),  parts_->cpu_compute.get()};
    return;
  }
#endif
  parts_->cpu_compute = make_cpu_compute(*host.device);
  backend_ = {host.device.get(), parts_->cpu_compute.get(), host.world.get(), config.type};
}

RunBackend::~RunBackend() = default;

}  // namespace hydraulis
