#pragma once

// The C++ bindings that some MPI versions still carry are not used.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/communicator.h"
#include "kernels/cpu/device_memory.h"
#include "kernels/cpu/stream.h"

namespace hydraulis::cpu {

/// What the communicators of a process share.
struct Job {
  MPI_Comm world = MPI_COMM_NULL;  ///< null in a process that runs alone without MPI
  int rank = 0;
  int size = 1;
  int contexts = 1;      ///< number of different contexts that MPI's tags have room for
  int next_context = 1;  ///< 0 is the world's
  double timeout_seconds = 60;
  Traffic traffic;
  BlockPool scratch;  ///< buffers of running reductions
  bool failed = false;
};

/// The members of a communicator. Messages of different groups do not meet: a tag is made of the
/// group's context and a lane in it.
struct Group {
  std::shared_ptr<Job> job;
  std::vector<int> members;  ///< ranks of the job
  int rank = 0;              ///< of this process in members
  int context = 0;
  std::int64_t collectives = 0;  ///< started so far

  int size() const { return static_cast<int>(members.size()); }
};

/// Lanes of a context: one a channel, one for the signatures of collectives, one for the making of
/// subgroups; the rest are taken in turn by collectives, so that those under way together do not
/// mix.
constexpr int kLaneBits = 8;
constexpr int kSignatureLane = 8;
constexpr int kSubgroupLane = 9;
constexpr int kFirstCollectiveLane = 16;

/// Messages longer than this travel in pieces (MPI counts are int).
constexpr std::int64_t kMessageBytes = std::int64_t{1} << 28;

/// What all members of a collective must agree on, sent around in a ring of small messages beside
/// the collective itself: who does something else is found out instead of waited for.
struct Signature {
  char operation[16] = {};
  std::int64_t number = 0;  ///< of the collective in its group
  std::int64_t count = 0;
  std::int32_t type = -1;
  std::int32_t detail = -1;  ///< root, reduction
};

/// A communication made of messages. Messages belong to numbered steps; what a step is waited for
/// is up to the operation.
class Operation : public Pending {
 public:
  Operation(std::shared_ptr<Group> group, std::string what);
  ~Operation() override;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

 protected:
  // Ranks are the group's.
  void send(const void* data, std::int64_t bytes, int peer, int lane, int step);
  void receive(void* data, std::int64_t bytes, int peer, int lane, int step);
  /// Takes part in the ring that compares signatures.
  void compare_signature(const Signature& mine, int step);
  /// Looks which messages have ended. Throws CommunicationError.
  void look();
  int open(int step) const { return open_[static_cast<std::size_t>(step)]; }
  void set_steps(std::size_t steps) { open_.resize(steps); }
  /// Memory until the operation ends; kept for good when it fails, as peers may still write to it.
  void* scratch(std::int64_t bytes);
  const Group& group() const { return *group_; }

  double timeout_seconds() const override { return group_->job->timeout_seconds; }
  std::string overdue(double waited_seconds) const override;
  void cancel() noexcept override;

 private:
  struct Part {
    int peer = 0;
    int step = 0;
    bool is_send = false;
    std::int64_t bytes = 0;
    bool is_signature = false;  ///< of the previous rank
  };
  void began(const Part& part, MPI_Request request, int error);
  [[noreturn]] void fail(const std::string& how) const;
  void check_signature() const;
  std::string place() const;

  std::shared_ptr<Group> group_;
  std::string what_;
  std::vector<MPI_Request> requests_;
  std::vector<Part> parts_;  // of the requests
  std::vector<int> open_;    // messages under way by step
  std::vector<int> done_;
  std::vector<MPI_Status> statuses_;
  std::vector<void*> scratch_;
  Signature* signatures_ = nullptr;  // mine, the previous rank's
};

}  // namespace hydraulis::cpu
