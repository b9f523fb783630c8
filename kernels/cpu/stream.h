#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace hydraulis::cpu {

/// Seconds since the process first asked.
double now_seconds();

/// A communication that has been started and has not ended yet. Communications move only while this
/// process asks about one of them (MPI has no thread of its own here), so asking about one moves
/// all.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Moves every communication of this process on; true when this one has ended. Throws
  /// CommunicationError, again at every call, when it failed or its time is over. Time counts while
  /// it is asked about: a rank that computes for minutes before it asks has not waited yet.
  bool test();
  bool ended() const { return ended_; }
  /// When it was found ended.
  double ended_seconds() const { return ended_seconds_; }
  /// A point-to-point exchange: may be under way together with others of its stream.
  virtual bool is_exchange() const { return false; }

 protected:
  /// Moves this communication on without waiting; true when it has ended. Throws when it failed.
  virtual bool advance() = 0;
  virtual double timeout_seconds() const = 0;
  /// What is said when the time is over: the operation, this rank, the peers it waits for.
  virtual std::string overdue(double waited_seconds) const = 0;
  /// Gives up what is still under way after a failure.
  virtual void cancel() noexcept = 0;

 private:
  friend void start(std::shared_ptr<Pending> pending);
  friend void progress();
  void move_on() noexcept;

  bool ended_ = false;
  double ended_seconds_ = 0;
  double waited_seconds_ = 0;
  double asked_seconds_ = -1;
  std::exception_ptr failure_;
};

/// Takes a communication among those that move on together, until it ends or fails.
void start(std::shared_ptr<Pending> pending);
/// Moves all of them on.
void progress();
/// True when any is under way.
bool communicating();
/// Waits until one has ended. Gives the core to others meanwhile: there may be more ranks than
/// cores.
void wait_for(Pending& pending);

/// Streams of the CPU backend: kernels run at once in the calling thread, communications run beside
/// it. So a stream is the list of its unfinished communications; whatever needs them waits.
class CpuStream : public Stream {
 public:
  void add(std::shared_ptr<Pending> pending);
  const std::vector<std::shared_ptr<Pending>>& pending() const { return pending_; }
  /// Waits until every communication has ended.
  void drain();

 private:
  std::vector<std::shared_ptr<Pending>> pending_;
};

/// The stream as this backend's, emptied: what every kernel does first. Also lets communications of
/// other streams move on between kernels.
inline CpuStream& drained(Stream& stream) {
  auto& mine = static_cast<CpuStream&>(stream);
  if (!mine.pending().empty()) {
    mine.drain();
  } else if (communicating()) {
    progress();
  }
  return mine;
}

}  // namespace hydraulis::cpu
