#include "kernels/cpu/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/cpu/device_memory.h"
#include "kernels/cpu/stream.h"

namespace hydraulis::cpu {

namespace {

class CpuEvent : public Event {
 public:
  explicit CpuEvent(std::vector<std::shared_ptr<Pending>> pending)
      : pending_(std::move(pending)), seconds_(now_seconds()) {}

  bool done() override {
    while (!pending_.empty()) {
      if (!pending_.back()->test()) return false;
      passed();
    }
    return true;
  }
  double seconds() const override { return seconds_; }

  void wait() {
    while (!pending_.empty()) {
      wait_for(*pending_.back());
      passed();
    }
  }

 private:
  void passed() {
    seconds_ = std::max(seconds_, pending_.back()->ended_seconds());
    pending_.pop_back();
  }

  std::vector<std::shared_ptr<Pending>> pending_;
  double seconds_ = 0;
};

class CpuDevice : public Device {
 public:
  CpuDevice(int threads, std::int64_t memory_limit_bytes)
      : threads_(threads), pool_(memory_limit_bytes) {}

  std::string name() const override {
    return fmt::format("CPU, {} thread{}", threads_, threads_ == 1 ? "" : "s");
  }
  int threads() const override { return threads_; }

  void* allocate(std::int64_t bytes) override { return pool_.allocate(bytes); }
  void release(void* block) noexcept override { pool_.release(block); }
  DeviceMemory memory() const override { return pool_.memory(); }
  void reset_peak() override { pool_.reset_peak(); }
  // All its memory is the host's.
  void* allocate_host(std::int64_t bytes) override { return pool_.allocate(bytes); }
  void release_host(void* block) noexcept override { pool_.release(block); }

  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CpuStream>(); }
  std::shared_ptr<Event> record(Stream& stream) override {
    return std::make_shared<CpuEvent>(static_cast<CpuStream&>(stream).pending());
  }
  // Kernels run at once, so the only way to start later ones after the event is to wait for it.
  void wait(Stream&, const std::shared_ptr<Event>& event) override {
    static_cast<CpuEvent&>(*event).wait();
  }
  void synchronize(Stream& stream) override { drained(stream); }

  void copy_to_device(void* to, const void* from, std::int64_t bytes, Stream& stream) override {
    copy(to, from, bytes, stream);
  }
  void copy_to_host(void* to, const void* from, std::int64_t bytes, Stream& stream) override {
    copy(to, from, bytes, stream);
  }
  void copy(void* to, const void* from, std::int64_t bytes, Stream& stream) override {
    drained(stream);
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void zero(void* memory, std::int64_t bytes, Stream& stream) override {
    drained(stream);
    if (bytes > 0) std::memset(memory, 0, static_cast<std::size_t>(bytes));
  }

 private:
  int threads_;
  BlockPool pool_;
};

}  // namespace

std::unique_ptr<Device> make_device(int threads, std::int64_t memory_limit_bytes) {
  return std::make_unique<CpuDevice>(threads, memory_limit_bytes);
}

}  // namespace hydraulis::cpu
