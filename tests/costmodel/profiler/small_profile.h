#pragma once

#include "costmodel/profiler/profiler.h"

namespace hydraulis::test {

/// A model whose kernels take microseconds.
inline ModelSpec small_model() {
  ModelSpec model;
  model.name = "small";
  model.layers = 2;
  model.hidden = 32;
  model.ffn_hidden = 48;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 8;
  model.vocab = 96;
  return model;
}

inline ProfilerSettings small_settings() {
  ProfilerSettings settings;
  settings.name = "small";
  settings.models = {small_model()};
  settings.max_tokens = 64;
  settings.max_bytes = 8192;
  settings.quick = true;
  return settings;
}

/// What a rank of a CPU job measures with.
struct CpuBench {
  explicit CpuBench(CpuProcess& process, DataType type = DataType::f32)
      : compute(make_cpu_compute(*process.device)), stream(process.device->make_stream()) {
    bench = {process.device.get(), compute.get(), process.world.get(), stream.get(), type};
  }
  std::unique_ptr<Compute> compute;
  std::unique_ptr<Stream> stream;
  Bench bench;
};

}  // namespace hydraulis::test
