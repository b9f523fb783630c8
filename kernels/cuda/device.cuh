#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/check.cuh"
#include "kernels/device.h"

namespace hydraulis::cuda {

class EventHandle;

/// A stream of the CUDA runtime, destroyed when nobody needs it any more.
struct StreamHandle {
  StreamHandle();
  ~StreamHandle();
  StreamHandle(const StreamHandle&) = delete;
  StreamHandle& operator=(const StreamHandle&) = delete;
  cudaStream_t stream = nullptr;
  /// Blocks up to this number have been allocated before what is put on the stream from now on.
  std::uint64_t allocations = 0;

  /// Uses of blocks on this stream are numbered. Whoever gives a block back need not wait for what
  /// was put on the stream after its last use: communications there may wait for other ranks.
  std::uint64_t uses = 0;
  std::uint64_t done_uses = 0;  ///< up to here known to be done
  struct Mark {
    std::uint64_t uses = 0;  ///< are done when the event is
    std::shared_ptr<EventHandle> event;
  };
  std::deque<Mark> marks;  ///< the events recorded on the stream, by rising uses
  void mark(const std::shared_ptr<EventHandle>& event);
  /// An event recorded after this use; nullptr when there is none.
  const EventHandle* first_after(std::uint64_t use) const;
};

class CudaStream : public Stream {
 public:
  explicit CudaStream(std::shared_ptr<StreamHandle> handle) : handle_(std::move(handle)) {}
  const std::shared_ptr<StreamHandle>& handle() const { return handle_; }

 private:
  std::shared_ptr<StreamHandle> handle_;
};

/// An event of the CUDA runtime.
class EventHandle {
 public:
  explicit EventHandle(unsigned flags);
  ~EventHandle();
  EventHandle(const EventHandle&) = delete;
  EventHandle& operator=(const EventHandle&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Page-locked memory that copies to the device are read from. A piece is used again when the copy
/// is done.
class Staging {
 public:
  ~Staging();
  /// Puts a copy of host memory, which may change at once, on the stream.
  void copy_to_device(void* to, const void* from, std::int64_t bytes, cudaStream_t stream);

 private:
  struct Piece {
    void* memory = nullptr;
    std::int64_t bytes = 0;
    std::unique_ptr<EventHandle> copied;
  };
  static constexpr std::int64_t kPieceBytes = std::int64_t{16} << 20;
  static constexpr std::size_t kMostPieces = 32;  // from then on one waits
  Piece& idle_piece(std::int64_t bytes);

  std::vector<Piece> pieces_;
};

/// Turns the device's event times into seconds since a fixed moment, precise over days.
class EventClock {
 public:
  explicit EventClock(cudaStream_t stream);
  double seconds(const std::shared_ptr<EventHandle>& done);

 private:
  std::shared_ptr<EventHandle> anchor_;
  double anchor_seconds_ = 0;
};

/// Looks after communications, which may never end, while a device is waited for.
class Watch {
 public:
  virtual ~Watch() = default;
  /// Throws what went wrong.
  virtual void look() = 0;
  virtual double timeout_seconds() const = 0;
  [[noreturn]] virtual void overdue(double waited_seconds) = 0;
};

/// Time spent on asking whether something has ended.
class Patience {
 public:
  /// Called when it has not: throws what the watch finds, and when the time is over.
  void ask(Watch* watch);

 private:
  double asked_seconds_ = -1;
  double waited_seconds_ = 0;
};

class CudaDevice : public Device {
 public:
  CudaDevice(int number, std::int64_t memory_limit_bytes);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  std::string name() const override;
  int threads() const override { return 1; }

  void* allocate(std::int64_t bytes) override;
  void release(void* block) noexcept override;
  DeviceMemory memory() const override;
  void reset_peak() override { memory_.peak = memory_.allocated; }
  void* allocate_host(std::int64_t bytes) override;
  void release_host(void* block) noexcept override;

  std::unique_ptr<Stream> make_stream() override;
  std::shared_ptr<Event> record(Stream& stream) override;
  void wait(Stream& stream, const std::shared_ptr<Event>& event) override;
  void synchronize(Stream& stream) override;

  void copy_to_device(void* to, const void* from, std::int64_t bytes, Stream& stream) override;
  void copy_to_host(void* to, const void* from, std::int64_t bytes, Stream& stream) override;
  void copy(void* to, const void* from, std::int64_t bytes, Stream& stream) override;
  void zero(void* memory, std::int64_t bytes, Stream& stream) override;

  /// From now on whoever waits for this device looks at its communications too.
  void set_watch(std::shared_ptr<Watch> watch) { watch_ = std::move(watch); }

  /// The stream, for work that touches these addresses: what follows on it comes after their
  /// allocation and before their release.
  cudaStream_t use(Stream& stream, std::initializer_list<const void*> addresses);

 private:
  struct Block {
    std::int64_t bytes = 0;
    std::uint64_t number = 0;  // of its allocation, counted from 1
    struct User {              // other than home
      std::shared_ptr<StreamHandle> stream;
      std::uint64_t last_use = 0;
    };
    std::vector<User> users;
  };

  std::string properties_name_;
  std::int64_t limit_ = 0;
  cudaMemPool_t pool_ = nullptr;
  std::shared_ptr<StreamHandle> home_;
  bool home_given_ = false;
  std::map<const char*, Block> blocks_;  // by address
  std::uint64_t allocations_ = 0;
  DeviceMemory memory_;
  EventHandle order_{cudaEventDisableTiming};  // between streams, used anew each time
  Staging staging_;
  std::map<const char*, std::int64_t> host_blocks_;  // bytes by address
  std::shared_ptr<EventClock> clock_;
  std::shared_ptr<Watch> watch_;
};

}  // namespace hydraulis::cuda
