#pragma once

#include <memory>

#include "kernels/communicator.h"
#include "kernels/compute.h"
#include "kernels/device.h"
#include "kernels/matrix.h"

namespace hydraulis {

/// What the runtime of one process works with. Streams live as long as the process's runtime.
struct Backend {
  Device* device = nullptr;
  Compute* compute = nullptr;
  Communicator* world = nullptr;  ///< of device memory
  /// Of parameters and activations in the stages; statistics, gradients and the optimizer's numbers
  /// are of its wide type.
  DataType type = DataType::f32;
  /// The same ranks with host memory; nullptr where `world` takes that (the CPU backend).
  Communicator* host_world = nullptr;
  /// The stream to compute on, the first that the device made; nullptr: any.
  Stream* stream = nullptr;
  /// The CPU backend's kernels, for what the host does beside the device; nullptr: none.
  Compute* host_compute = nullptr;

  Communicator& hosts() const { return host_world != nullptr ? *host_world : *world; }
};

/// The stream that a backend computes on, or one of its own.
class ComputeStream {
 public:
  explicit ComputeStream(const Backend& backend)
      : own_(backend.stream != nullptr ? nullptr : backend.device->make_stream()),
        stream_(backend.stream != nullptr ? backend.stream : own_.get()) {}
  Stream& operator*() const { return *stream_; }

 private:
  std::unique_ptr<Stream> own_;
  Stream* stream_;
};

/// A matrix that owns its memory. Movable; empty until made.
struct Tensor {
  DeviceBuffer buffer;
  Matrix matrix;

  Tensor() = default;
  Tensor(const Backend& backend, std::int64_t rows, std::int64_t columns)
      : Tensor(backend, backend.type, rows, columns) {}
  Tensor(const Backend& backend, DataType type, std::int64_t rows, std::int64_t columns)
      : buffer(*backend.device, rows * columns * size_of(type)),
        matrix{buffer.data(), type, rows, columns, columns} {}
  bool empty() const { return matrix.data == nullptr; }
  std::int64_t bytes() const { return matrix.elements() * size_of(matrix.type); }
};

}  // namespace hydraulis
