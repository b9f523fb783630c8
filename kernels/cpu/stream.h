#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernels/device.h"

namespace hydraulis::cpu {

/// A communication that has been started and not yet ended.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Makes progress; true when the operation has ended. Throws CommunicationError when it failed
  /// or its time is over.
  virtual bool test() = 0;
};

/// Streams of the CPU backend: kernels run at once in the calling thread, communications run beside
/// it. So a stream is the list of its unfinished communications; whatever needs them waits.
class CpuStream : public Stream {
 public:
  void add(std::shared_ptr<Pending> pending) { pending_.push_back(std::move(pending)); }
  const std::vector<std::shared_ptr<Pending>>& pending() const { return pending_; }
  /// Waits until every communication has ended, giving the core to others meanwhile (there may be
  /// more ranks than cores).
  void drain();

 private:
  std::vector<std::shared_ptr<Pending>> pending_;
};

/// The stream as this backend's, emptied: what every kernel does first.
inline CpuStream& drained(Stream& stream) {
  auto& mine = static_cast<CpuStream&>(stream);
  if (!mine.pending().empty()) mine.drain();
  return mine;
}

}  // namespace hydraulis::cpu
