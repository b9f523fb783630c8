#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace hydraulis {

/// A queue of work on a device: what is put on it runs in order. Different streams run
/// concurrently where the device can.
class Stream {
 public:
  virtual ~Stream() = default;
};

/// A mark in a stream: done when everything put on the stream before it is done.
class Event {
 public:
  virtual ~Event() = default;
  /// Asks without waiting, and lets communication move on. Throws what made the work fail.
  virtual bool done() = 0;
  /// When it was found done, in seconds since some fixed moment of this process.
  virtual double seconds() const = 0;
};

/// Memory of a device in bytes.
struct DeviceMemory {
  std::int64_t allocated = 0;  ///< in use
  std::int64_t reserved = 0;   ///< taken from the system, in use or cached
  std::int64_t peak = 0;       ///< most that was ever in use since reset_peak()
  std::int64_t limit = 0;      ///< what this process may take; 0: what the machine has
};

/// One device of this process: its memory, its streams. Not thread-safe; one thread drives it.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;
  /// Threads that this device's kernels use (1 on a GPU).
  virtual int threads() const = 0;

  /// Uninitialised device memory aligned to at least 64 bytes; nullptr for 0 bytes. Blocks are
  /// pooled by size class, so that changing shapes do not fragment. Throws InfeasibleError with
  /// what was asked, allocated and reserved when the limit or the machine does not allow it.
  virtual void* allocate(std::int64_t bytes) = 0;
  /// Gives a block back; work already queued on any stream may still use it on the CPU backend
  /// only when it has been waited for.
  virtual void release(void* block) noexcept = 0;
  virtual DeviceMemory memory() const = 0;
  virtual void reset_peak() = 0;
  /// Uninitialised host memory that copies to and from this device run beside the host with
  /// (page-locked, on a GPU), aligned to at least 64 bytes; nullptr for 0 bytes. What a copy reads
  /// there must stay until the copy is done. Throws InfeasibleError when the machine has no more.
  virtual void* allocate_host(std::int64_t bytes) = 0;
  /// Waits for what is on the device where that may touch it.
  virtual void release_host(void* block) noexcept = 0;

  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::shared_ptr<Event> record(Stream& stream) = 0;
  /// Later work on `stream` starts after `event`.
  virtual void wait(Stream& stream, const std::shared_ptr<Event>& event) = 0;
  /// Returns when the stream is empty. Throws what made its work fail, CommunicationError when a
  /// communication on it did not end within the communicator's limit.
  virtual void synchronize(Stream& stream) = 0;

  virtual void copy_to_device(void* to, const void* from, std::int64_t bytes, Stream& stream) = 0;
  virtual void copy_to_host(void* to, const void* from, std::int64_t bytes, Stream& stream) = 0;
  virtual void copy(void* to, const void* from, std::int64_t bytes, Stream& stream) = 0;
  virtual void zero(void* memory, std::int64_t bytes, Stream& stream) = 0;
};

/// Host memory of a device's allocate_host(), released when it goes out of scope.
struct HostRelease {
  Device* device = nullptr;
  void operator()(void* block) const noexcept { device->release_host(block); }
};
using HostMemory = std::unique_ptr<void, HostRelease>;

/// A block of device memory released when it goes out of scope. Movable.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(Device& device, std::int64_t bytes)
      : device_(&device), data_(device.allocate(bytes)), bytes_(bytes) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    DeviceBuffer moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_ != nullptr) device_->release(data_);
  }
  void* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  void swap(DeviceBuffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  Device* device_ = nullptr;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace hydraulis
