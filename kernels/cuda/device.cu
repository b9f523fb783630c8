#include <sched.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/device.h"

namespace hydraulis::cuda {

namespace {

class CudaEvent : public Event {
 public:
  CudaEvent(std::shared_ptr<EventHandle> handle, std::shared_ptr<EventClock> clock,
            std::shared_ptr<Watch> watch)
      : handle_(std::move(handle)), clock_(std::move(clock)), watch_(std::move(watch)) {}

  bool done() override {
    if (done_) return true;
    const cudaError_t error = cudaEventQuery(handle_->get());
    if (error == cudaErrorNotReady) {
      patience_.ask(watch_.get());
      return false;
    }
    check(error, "cudaEventQuery");
    seconds_ = clock_->seconds(handle_);
    done_ = true;
    return true;
  }
  double seconds() const override { return seconds_; }
  cudaEvent_t get() const { return handle_->get(); }

 private:
  std::shared_ptr<EventHandle> handle_;
  std::shared_ptr<EventClock> clock_;
  std::shared_ptr<Watch> watch_;
  Patience patience_;
  double seconds_ = 0;
  bool done_ = false;
};

CudaStream& cuda_stream(Stream& stream) { return static_cast<CudaStream&>(stream); }

std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

}  // namespace

void Patience::ask(Watch* watch) {
  if (watch == nullptr) return;
  watch->look();
  // A pause of more than a second between two looks was spent on something else than waiting.
  const double now =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  if (asked_seconds_ >= 0) waited_seconds_ += std::min(now - asked_seconds_, 1.0);
  asked_seconds_ = now;
  if (waited_seconds_ > watch->timeout_seconds()) watch->overdue(waited_seconds_);
}

StreamHandle::StreamHandle() {
  HYDRAULIS_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
}
StreamHandle::~StreamHandle() { cudaStreamDestroy(stream); }

void StreamHandle::mark(const std::shared_ptr<EventHandle>& event) {
  constexpr std::size_t kMarks = 32;  // before the oldest are asked whether they are done
  while (marks.size() >= kMarks && cudaEventQuery(marks.front().event->get()) == cudaSuccess) {
    done_uses = marks.front().uses;
    marks.pop_front();
  }
  if (uses > done_uses && (marks.empty() || marks.back().uses < uses)) {
    marks.push_back({uses, event});
  }
}

const EventHandle* StreamHandle::first_after(std::uint64_t use) const {
  const auto found = std::lower_bound(marks.begin(), marks.end(), use,
                                      [](const Mark& m, std::uint64_t u) { return m.uses < u; });
  return found == marks.end() ? nullptr : found->event.get();
}

EventHandle::EventHandle(unsigned flags) {
  HYDRAULIS_CUDA_CHECK(cudaEventCreateWithFlags(&event_, flags));
}
EventHandle::~EventHandle() { cudaEventDestroy(event_); }

Staging::~Staging() {
  for (const Piece& piece : pieces_) cudaFreeHost(piece.memory);
}

Staging::Piece& Staging::idle_piece(std::int64_t bytes) {
  Piece* largest = nullptr;
  for (Piece& piece : pieces_) {
    if (piece.bytes < bytes) continue;
    const cudaError_t error = cudaEventQuery(piece.copied->get());
    if (error == cudaSuccess) return piece;
    if (error != cudaErrorNotReady) check(error, "cudaEventQuery");
    if (largest == nullptr || piece.bytes > largest->bytes) largest = &piece;
  }
  if (pieces_.size() >= kMostPieces && largest != nullptr) {
    HYDRAULIS_CUDA_CHECK(cudaEventSynchronize(largest->copied->get()));
    return *largest;
  }
  Piece fresh;
  constexpr std::uint64_t kSmallest = 4096;
  fresh.bytes = static_cast<std::int64_t>(
      std::bit_ceil(std::max(kSmallest, static_cast<std::uint64_t>(bytes))));
  fresh.copied = std::make_unique<EventHandle>(cudaEventDisableTiming);
  HYDRAULIS_CUDA_CHECK(cudaMallocHost(&fresh.memory, size(fresh.bytes)));
  pieces_.push_back(std::move(fresh));
  return pieces_.back();
}

void Staging::copy_to_device(void* to, const void* from, std::int64_t bytes, cudaStream_t stream) {
  for (std::int64_t done = 0; done < bytes; done += kPieceBytes) {
    const std::int64_t part = std::min(kPieceBytes, bytes - done);
    Piece& piece = idle_piece(part);
    std::memcpy(piece.memory, static_cast<const char*>(from) + done, size(part));
    HYDRAULIS_CUDA_CHECK(cudaMemcpyAsync(static_cast<char*>(to) + done, piece.memory, size(part),
                                         cudaMemcpyHostToDevice, stream));
    HYDRAULIS_CUDA_CHECK(cudaEventRecord(piece.copied->get(), stream));
  }
}

EventClock::EventClock(cudaStream_t stream)
    : anchor_(std::make_shared<EventHandle>(cudaEventDefault)) {
  HYDRAULIS_CUDA_CHECK(cudaEventRecord(anchor_->get(), stream));
  HYDRAULIS_CUDA_CHECK(cudaEventSynchronize(anchor_->get()));
}

double EventClock::seconds(const std::shared_ptr<EventHandle>& done) {
  float milliseconds = 0;
  HYDRAULIS_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, anchor_->get(), done->get()));
  const double seconds = anchor_seconds_ + static_cast<double>(milliseconds) * 1e-3;
  // A float counts microseconds only for some seconds: measure from a later event then.
  if (milliseconds > 1000) {
    anchor_ = done;
    anchor_seconds_ = seconds;
  }
  return seconds;
}

CudaDevice::CudaDevice(int number, std::int64_t memory_limit_bytes) {
  HYDRAULIS_CUDA_CHECK(cudaSetDevice(number));
  cudaDeviceProp properties;
  HYDRAULIS_CUDA_CHECK(cudaGetDeviceProperties(&properties, number));
  properties_name_ = properties.name;
  const auto whole = static_cast<std::int64_t>(properties.totalGlobalMem);
  memory_.limit = memory_limit_bytes;
  limit_ = memory_limit_bytes > 0 ? std::min(memory_limit_bytes, whole) : whole;
  cudaMemPoolProps pool{};
  pool.allocType = cudaMemAllocationTypePinned;
  pool.handleTypes = cudaMemHandleTypeNone;
  pool.location.type = cudaMemLocationTypeDevice;
  pool.location.id = number;
  HYDRAULIS_CUDA_CHECK(cudaMemPoolCreate(&pool_, &pool));
  // What is given back stays in the pool for the next of any shape.
  std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  HYDRAULIS_CUDA_CHECK(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &all));
  home_ = std::make_shared<StreamHandle>();
  clock_ = std::make_shared<EventClock>(home_->stream);
}

CudaDevice::~CudaDevice() {
  for (const auto& [block, kept] : blocks_) {
    cudaFreeAsync(const_cast<char*>(block), home_->stream);
  }
  cudaStreamSynchronize(home_->stream);
  cudaMemPoolDestroy(pool_);
}

std::string CudaDevice::name() const { return properties_name_; }

void* CudaDevice::allocate(std::int64_t bytes) {
  if (bytes < 0) throw InfeasibleError("a block of {} bytes of device memory was asked for", bytes);
  if (bytes == 0) return nullptr;
  const auto refuse = [&](const char* why) {
    throw InfeasibleError(
        "out of device memory: {} bytes asked, {} in use, {} reserved, {} of {} bytes: at most {} "
        "more fit",
        bytes, memory_.allocated, memory().reserved, why, limit_,
        std::max<std::int64_t>(0, limit_ - memory_.allocated));
  };
  if (bytes > limit_ - memory_.allocated) refuse(memory_.limit > 0 ? "limit" : "memory");
  void* block = nullptr;
  const cudaError_t error = cudaMallocFromPoolAsync(&block, size(bytes), pool_, home_->stream);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    refuse("memory");
  }
  check(error, "cudaMallocFromPoolAsync");
  blocks_[static_cast<char*>(block)] = {bytes, ++allocations_, {}};
  memory_.allocated += bytes;
  memory_.peak = std::max(memory_.peak, memory_.allocated);
  return block;
}

// After a failed kernel these calls fail too; whoever waits next is told.
void CudaDevice::release(void* block) noexcept {
  if (block == nullptr) return;
  const auto found = blocks_.find(static_cast<char*>(block));
  if (found == blocks_.end()) {
    std::fputs("device memory: a block that was not allocated, or not any more, is released\n",
               stderr);
    std::abort();
  }
  for (const Block::User& user : found->second.users) {
    if (user.last_use <= user.stream->done_uses) continue;
    const EventHandle* event = user.stream->first_after(user.last_use);
    if (event == nullptr) {
      cudaEventRecord(order_.get(), user.stream->stream);
      event = &order_;
    }
    cudaStreamWaitEvent(home_->stream, event->get(), 0);
  }
  memory_.allocated -= found->second.bytes;
  blocks_.erase(found);
  cudaFreeAsync(block, home_->stream);
}

DeviceMemory CudaDevice::memory() const {
  DeviceMemory result = memory_;
  std::uint64_t reserved = 0;
  HYDRAULIS_CUDA_CHECK(
      cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved));
  result.reserved = static_cast<std::int64_t>(reserved);
  return result;
}

void* CudaDevice::allocate_host(std::int64_t bytes) {
  if (bytes < 0) throw InfeasibleError("a block of {} bytes of host memory was asked for", bytes);
  if (bytes == 0) return nullptr;
  void* block = nullptr;
  const cudaError_t error = cudaMallocHost(&block, size(bytes));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::int64_t held = 0;
    for (const auto& [begin, length] : host_blocks_) held += length;
    throw InfeasibleError(
        "out of page-locked host memory: {} bytes asked, {} in use by this rank; the machine (or "
        "ulimit -l, or the container) gives no more",
        bytes, held);
  }
  check(error, "cudaMallocHost");
  host_blocks_[static_cast<char*>(block)] = bytes;
  return block;
}

void CudaDevice::release_host(void* block) noexcept {
  if (block == nullptr || host_blocks_.erase(static_cast<char*>(block)) == 0) return;
  cudaFreeHost(block);
}

std::unique_ptr<Stream> CudaDevice::make_stream() {
  if (!home_given_) {
    home_given_ = true;
    return std::make_unique<CudaStream>(home_);
  }
  return std::make_unique<CudaStream>(std::make_shared<StreamHandle>());
}

std::shared_ptr<Event> CudaDevice::record(Stream& stream) {
  auto handle = std::make_shared<EventHandle>(cudaEventDefault);
  const auto& on = cuda_stream(stream).handle();
  HYDRAULIS_CUDA_CHECK(cudaEventRecord(handle->get(), on->stream));
  if (on != home_) on->mark(handle);
  return std::make_shared<CudaEvent>(std::move(handle), clock_, watch_);
}

void CudaDevice::wait(Stream& stream, const std::shared_ptr<Event>& event) {
  HYDRAULIS_CUDA_CHECK(cudaStreamWaitEvent(cuda_stream(stream).handle()->stream,
                                           static_cast<CudaEvent&>(*event).get(), 0));
}

void CudaDevice::synchronize(Stream& stream) {
  if (watch_ != nullptr) {
    Patience patience;
    while (true) {
      const cudaError_t error = cudaStreamQuery(cuda_stream(stream).handle()->stream);
      if (error != cudaErrorNotReady) break;
      patience.ask(watch_.get());
      sched_yield();
    }
  }
  HYDRAULIS_CUDA_CHECK(cudaStreamSynchronize(cuda_stream(stream).handle()->stream));
}

cudaStream_t CudaDevice::use(Stream& stream, std::initializer_list<const void*> addresses) {
  const auto& handle = cuda_stream(stream).handle();
  if (handle == home_) return handle->stream;
  ++handle->uses;
  for (const void* address : addresses) {
    const auto after = blocks_.upper_bound(static_cast<const char*>(address));
    if (after == blocks_.begin()) continue;  // nothing: an empty matrix
    const auto& [begin, block] = *std::prev(after);
    if (static_cast<const char*>(address) >= begin + block.bytes) continue;
    auto& users = std::prev(after)->second.users;
    const auto user = std::find_if(users.begin(), users.end(),
                                   [&](const Block::User& u) { return u.stream == handle; });
    if (user != users.end()) {
      user->last_use = handle->uses;
      continue;
    }
    if (handle->allocations < block.number) {
      HYDRAULIS_CUDA_CHECK(cudaEventRecord(order_.get(), home_->stream));
      HYDRAULIS_CUDA_CHECK(cudaStreamWaitEvent(handle->stream, order_.get(), 0));
      handle->allocations = allocations_;
    }
    users.push_back({handle, handle->uses});
  }
  return handle->stream;
}

void CudaDevice::copy_to_device(void* to, const void* from, std::int64_t bytes, Stream& stream) {
  const auto* begin = static_cast<const char*>(from);
  const auto after = host_blocks_.upper_bound(begin);
  const bool locked =
      after != host_blocks_.begin() && begin < std::prev(after)->first + std::prev(after)->second;
  if (!locked) return staging_.copy_to_device(to, from, bytes, use(stream, {to}));
  if (bytes == 0) return;
  HYDRAULIS_CUDA_CHECK(
      cudaMemcpyAsync(to, from, size(bytes), cudaMemcpyHostToDevice, use(stream, {to})));
}

void CudaDevice::copy_to_host(void* to, const void* from, std::int64_t bytes, Stream& stream) {
  if (bytes == 0) return;
  HYDRAULIS_CUDA_CHECK(
      cudaMemcpyAsync(to, from, size(bytes), cudaMemcpyDeviceToHost, use(stream, {from})));
}

void CudaDevice::copy(void* to, const void* from, std::int64_t bytes, Stream& stream) {
  if (bytes == 0) return;
  HYDRAULIS_CUDA_CHECK(
      cudaMemcpyAsync(to, from, size(bytes), cudaMemcpyDeviceToDevice, use(stream, {to, from})));
}

void CudaDevice::zero(void* memory, std::int64_t bytes, Stream& stream) {
  if (bytes == 0) return;
  HYDRAULIS_CUDA_CHECK(cudaMemsetAsync(memory, 0, size(bytes), use(stream, {memory})));
}

std::unique_ptr<Device> make_device(int number, std::int64_t memory_limit_bytes) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  if (number < 0 || number >= count) {
    throw InputError("GPU {} is asked for, and this machine has {}", number, count);
  }
  return std::make_unique<CudaDevice>(number, memory_limit_bytes);
}

}  // namespace hydraulis::cuda
