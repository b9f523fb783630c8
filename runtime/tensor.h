#pragma once

#include "kernels/communicator.h"
#include "kernels/compute.h"
#include "kernels/device.h"
#include "kernels/matrix.h"

namespace hydraulis {

/// What the runtime of one process works with. Streams live as long as the process's runtime.
struct Backend {
  Device* device = nullptr;
  Compute* compute = nullptr;
  Communicator* world = nullptr;
  DataType type = DataType::f32;  ///< of parameters, gradients and activations
};

/// A matrix that owns its memory. Movable; empty until made.
struct Tensor {
  DeviceBuffer buffer;
  Matrix matrix;

  Tensor() = default;
  Tensor(const Backend& backend, std::int64_t rows, std::int64_t columns)
      : buffer(*backend.device, rows * columns * size_of(backend.type)),
        matrix{buffer.data(), backend.type, rows, columns, columns} {}
  bool empty() const { return matrix.data == nullptr; }
  std::int64_t bytes() const { return matrix.elements() * size_of(matrix.type); }
};

}  // namespace hydraulis
