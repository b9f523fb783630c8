#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "tests/cuda_emulator/faults.h"
#include "tests/cuda_emulator/include/cuda_runtime.h"
#include "tests/cuda_emulator/memory.h"
#include "tests/cuda_emulator/streams.h"

// NOLINTBEGIN(readability-identifier-naming): CUDA's names

struct CUmemPoolHandle_st {
  std::size_t limit = 0;
  std::size_t reserved = 0;
  std::map<const void*, std::size_t> blocks;
};

namespace {

using emulator::AccessKind;
using emulator::lock;
using Guard = std::lock_guard<std::recursive_mutex>;

constexpr std::size_t kDefaultSharedBytes = 48 * 1024;
constexpr std::size_t kMostSharedBytes = 227 * 1024;  // sm_90; sm_80 has 163 KiB

std::map<const void*, std::size_t>& shared_limits() {
  static std::map<const void*, std::size_t> limits;
  return limits;
}

/// Page-locked memory: copies read it when they run, not when they are queued.
std::map<const char*, std::size_t>& pinned() {
  static std::map<const char*, std::size_t> blocks;
  return blocks;
}

bool is_pinned(const void* address) {
  const auto* at = static_cast<const char*>(address);
  const auto after = pinned().upper_bound(at);
  if (after == pinned().begin()) return false;
  const auto& [begin, bytes] = *std::prev(after);
  return at < begin + bytes;
}

std::map<const void*, cudaMemPool_t>& pool_of_block() {
  static std::map<const void*, cudaMemPool_t> pools;
  return pools;
}

cudaError_t last_error = cudaSuccess;
cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t state() { return emulator::faulty() ? cudaErrorLaunchFailure : cudaSuccess; }

/// What a copy reads need not have been written: rows are copied with what lies between them.
bool copy_reads(const void* memory, std::size_t bytes, const char* name) {
  std::string wrong = emulator::wrong_with(memory, bytes);
  if (wrong.empty()) {
    wrong = emulator::note_copied(*emulator::find_device_region(memory), memory, bytes);
  }
  if (!wrong.empty()) emulator::report(wrong + " (" + name + ")");
  return wrong.empty();
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaErrorLaunchFailure && emulator::faulty()) return emulator::fault().c_str();
  return cudaGetErrorName(error);
}

cudaError_t cudaGetLastError() {
  const Guard guard(lock());
  if (emulator::faulty()) return cudaErrorLaunchFailure;
  return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const Guard guard(lock());
  *stream = emulator::make_stream();
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Guard guard(lock());
  if (!emulator::known(stream)) return remember(cudaErrorInvalidResourceHandle);
  emulator::destroy_stream(stream);
  return state();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Guard guard(lock());
  if (!emulator::known(stream)) return remember(cudaErrorInvalidResourceHandle);
  emulator::synchronize(*stream);
  return state();
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Guard guard(lock());
  if (!emulator::known(stream)) return remember(cudaErrorInvalidResourceHandle);
  emulator::let_time_pass();
  if (emulator::faulty()) return state();
  if (!emulator::empty(*stream)) return cudaErrorNotReady;
  emulator::host_knows(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Guard guard(lock());
  if (!emulator::known(stream) || event == nullptr) {
    return remember(cudaErrorInvalidResourceHandle);
  }
  emulator::wait(*stream, *event);
  return state();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const Guard guard(lock());
  *event = emulator::make_event();
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Guard guard(lock());
  emulator::destroy_event(event);
  return state();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Guard guard(lock());
  if (!emulator::known(stream) || event == nullptr) {
    return remember(cudaErrorInvalidResourceHandle);
  }
  emulator::record(*event, *stream);
  return state();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Guard guard(lock());
  emulator::let_time_pass();
  if (emulator::faulty()) return state();
  if (!emulator::done(*event)) return cudaErrorNotReady;
  emulator::host_knows(*event);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Guard guard(lock());
  emulator::synchronize(*event);
  return state();
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const Guard guard(lock());
  if (!emulator::done(*begin) || !emulator::done(*end)) return cudaErrorNotReady;
  *milliseconds = static_cast<float>((emulator::seconds(*end) - emulator::seconds(*begin)) * 1e3);
  return state();
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : remember(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  const Guard guard(lock());
  emulator::synchronize_all();
  return state();
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return remember(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated device");
  // Every process has a device of its own.
  std::snprintf(properties->uuid.bytes, sizeof properties->uuid.bytes, "emulated %d",
                static_cast<int>(getpid()) % 100000);
  properties->totalGlobalMem = emulator::device_bytes();
  properties->multiProcessorCount = 4;
  properties->major = 9;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const Guard guard(lock());
  *total = emulator::device_bytes();
  *free = *total - emulator::device_bytes_in_use();
  return state();
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  if (properties->location.id != 0) return remember(cudaErrorInvalidDevice);
  *pool = new CUmemPoolHandle_st;
  (*pool)->limit = properties->maxSize;
  return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  const Guard guard(lock());
  // As in CUDA, blocks in use outlive their pool.
  for (const auto& [block, bytes] : pool->blocks) pool_of_block().erase(block);
  delete pool;
  return state();
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return state(); }

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void* value) {
  const Guard guard(lock());
  const std::uint64_t reserved = pool->reserved;
  std::memcpy(value, &reserved, sizeof reserved);
  return state();
}

cudaError_t cudaMallocFromPoolAsync(void** block, std::size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  const Guard guard(lock());
  if (!emulator::known(stream)) return remember(cudaErrorInvalidResourceHandle);
  const auto refused = [&] {
    return pool->limit > 0 && (bytes > pool->limit || pool->reserved > pool->limit - bytes);
  };
  *block = refused() ? nullptr : emulator::reserve_device_memory(bytes);
  if (*block == nullptr) {
    // Like CUDA's pools, waits for memory whose release is queued before it gives up.
    emulator::synchronize_all();
    *block = refused() ? nullptr : emulator::reserve_device_memory(bytes);
  }
  if (*block == nullptr) return remember(cudaErrorMemoryAllocation);
  pool->reserved += bytes;
  pool->blocks[*block] = bytes;
  pool_of_block()[*block] = pool;
  emulator::enqueue_always(*stream, "cudaMallocFromPoolAsync",
                           [memory = *block] { emulator::make_device_memory(memory); });
  return state();
}

cudaError_t cudaFreeAsync(void* block, cudaStream_t stream) {
  const Guard guard(lock());
  if (!emulator::known(stream)) return remember(cudaErrorInvalidResourceHandle);
  emulator::enqueue_always(*stream, "cudaFreeAsync", [block] {
    const auto found = pool_of_block().find(block);
    if (found != pool_of_block().end()) {
      found->second->reserved -= found->second->blocks.at(block);
      found->second->blocks.erase(block);
      pool_of_block().erase(found);
    }
    emulator::free_device_memory(block);
  });
  return state();
}

cudaError_t cudaMallocHost(void** block, std::size_t bytes) {
  const Guard guard(lock());
  *block = std::malloc(std::max<std::size_t>(bytes, 1));
  if (*block == nullptr) return remember(cudaErrorMemoryAllocation);
  pinned()[static_cast<char*>(*block)] = bytes;
  return state();
}

cudaError_t cudaFreeHost(void* block) {
  const Guard guard(lock());
  if (pinned().erase(static_cast<char*>(block)) == 0) return remember(cudaErrorInvalidValue);
  emulator::synchronize_all();  // as cudaFreeHost does
  std::free(block);
  return state();
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const Guard guard(lock());
  if (!emulator::known(stream)) return remember(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return state();
  switch (kind) {
    case cudaMemcpyHostToDevice: {
      std::shared_ptr<std::vector<char>> staged;
      if (!is_pinned(from)) {  // pageable memory may change as soon as the call returns
        const auto* bytes_begin = static_cast<const char*>(from);
        staged = std::make_shared<std::vector<char>>(bytes_begin, bytes_begin + bytes);
      }
      emulator::enqueue(*stream, "a copy to the device", [=] {
        if (!emulator::touch_device(to, bytes, AccessKind::write, "copy to the device")) return;
        std::memcpy(to, staged ? staged->data() : from, bytes);
      });
      break;
    }
    case cudaMemcpyDeviceToHost:
      emulator::enqueue(*stream, "a copy to the host", [=] {
        if (!copy_reads(from, bytes, "copy to the host")) return;
        std::memcpy(to, from, bytes);
      });
      break;
    case cudaMemcpyDeviceToDevice:
      emulator::enqueue(*stream, "a copy on the device", [=] {
        if (!copy_reads(from, bytes, "copy on the device")) return;
        if (!emulator::touch_device(to, bytes, AccessKind::write, "copy on the device")) return;
        std::memcpy(to, from, bytes);
        emulator::copy_states(from, to, bytes);
      });
      break;
  }
  return state();
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  const Guard guard(lock());
  if (!emulator::known(stream)) return remember(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return state();
  emulator::enqueue(*stream, "cudaMemsetAsync", [=] {
    if (!emulator::touch_device(memory, bytes, AccessKind::write, "cudaMemsetAsync")) return;
    std::memset(memory, value, bytes);
  });
  return state();
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  const Guard guard(lock());
  if (value < 0 || static_cast<std::size_t>(value) > kMostSharedBytes) {
    return remember(cudaErrorInvalidValue);
  }
  shared_limits()[kernel] = static_cast<std::size_t>(value);
  return state();
}

namespace emulator {

cudaError_t launch(Launch launch, std::shared_ptr<void> arguments, cudaStream_t stream) {
  const Guard guard(lock());
  if (!known(stream)) return remember(cudaErrorInvalidResourceHandle);
  const auto set = shared_limits().find(launch.kernel);
  const std::size_t most_shared =
      std::max(kDefaultSharedBytes, set == shared_limits().end() ? 0 : set->second);
  const auto within = [](unsigned value, unsigned most) { return value >= 1 && value <= most; };
  if (!within(launch.grid.x, 0x7FFFFFFF) || !within(launch.grid.y, 65535) ||
      !within(launch.grid.z, 65535) || !within(launch.block.x, 1024) ||
      !within(launch.block.y, 1024) || !within(launch.block.z, 64) || launch.block.count() > 1024) {
    return remember(cudaErrorInvalidConfiguration);
  }
  if (launch.shared_bytes > most_shared) return remember(cudaErrorInvalidValue);
  launch.name = name_of(launch.kernel);
  std::string name = "kernel " + launch.name;
  enqueue(*stream, std::move(name),
          [l = std::move(launch), kept = std::move(arguments)] { run_blocks(l); });
  return state();
}

}  // namespace emulator

// NOLINTEND(readability-identifier-naming)
