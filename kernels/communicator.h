#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/matrix.h"

namespace hydraulis {

/// A communication that failed or did not end in time: a dead or stuck peer, a collective that does
/// not match. The message names the operation, this rank and, where known, the peer.
class CommunicationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class Reduction : std::uint8_t { sum, max };

/// One message of a grouped exchange.
struct Message {
  int peer = 0;  ///< rank in the communicator
  bool is_send = false;
  void* data = nullptr;  ///< device memory, only read when sending
  std::int64_t bytes = 0;
};

/// Independent lanes between two ranks: messages of one channel arrive in the order they were sent,
/// messages of different channels do not wait for one another. On GPUs the exchanges of a rank on
/// one channel follow one another, sends and receives alike, so what a stage receives and what it
/// sends on travel on channels of their own, by whether the sending stage's number is odd.
enum class Channel : std::uint8_t {
  activations,  ///< to the next stage
  gradients,    ///< to the previous stage
  ring,         ///< keys and values of context parallelism
  parameters,   ///< out of the optimizer layout
  reduction,    ///< gradients back to it
  other,
  odd_activations,  ///< from stages with odd numbers
  odd_gradients,
};
inline constexpr int kChannels = 8;

/// Bytes that this rank has put on links, by what for. A collective counts what a ring algorithm
/// sends from each rank: all-reduce 2(n−1)/n of the buffer, all-gather and reduce-scatter (n−1)/n
/// of the whole (rounded down), broadcast the bytes at the root alone, point-to-point the bytes
/// themselves, all-to-all what goes to others. What a rank sends itself is not counted.
struct Traffic {
  std::int64_t all_reduce = 0;
  std::int64_t all_gather = 0;
  std::int64_t reduce_scatter = 0;
  std::int64_t broadcast = 0;
  std::int64_t all_to_all = 0;
  std::int64_t point_to_point[6] =
      {};  ///< by Channel; those of odd stages count with the even ones
  std::int64_t& of(Channel channel) {
    const bool odd = channel > Channel::other;
    return point_to_point[static_cast<int>(channel) -
                          (odd ? static_cast<int>(Channel::odd_activations) : 0)];
  }
  std::int64_t total() const;
};

/// A group of processes that communicate. Operations are put on a stream and may still run when the
/// call returns: their buffers must stay as they are until an event recorded after them is done.
/// All members must call collectives in the same order with matching sizes; a collective that does
/// not match ends in a CommunicationError. So does a communication that has not ended after
/// timeout_seconds of waiting for it (HYDRAULIS_TIMEOUT_SECONDS, 60 by default), where it is waited
/// for. After a CommunicationError the job is to be aborted: what peers still send may arrive.
/// Operations on an empty buffer, or in a group of one, do nothing but what they must (copy). Sums
/// are taken in the order of ranks: the same contributions give the same bits. all_gather may have
/// its input in its place in the output, reduce_scatter its output in its place in the input.
/// A wrong argument is a std::logic_error.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// A communicator of these ranks of this one, in this order; called by exactly those members, who
  /// make the groups that they share in the same order. Waits for them, at most the limit.
  virtual std::unique_ptr<Communicator> subgroup(std::span<const int> ranks) = 0;

  /// In place.
  virtual void all_reduce(void* buffer, std::int64_t count, DataType type, Reduction reduction,
                          Stream& stream) = 0;
  /// output[count] = sum over ranks of input[rank·count …]; input has size()·count elements.
  virtual void reduce_scatter(const void* input, void* output, std::int64_t count, DataType type,
                              Stream& stream) = 0;
  /// output[r·count …] = rank r's input[count].
  virtual void all_gather(const void* input, void* output, std::int64_t count, DataType type,
                          Stream& stream) = 0;
  virtual void broadcast(void* buffer, std::int64_t bytes, int root, Stream& stream) = 0;
  /// Byte counts and offsets by peer. Receive counts are known beforehand, not exchanged.
  virtual void all_to_all_v(const void* input, std::span<const std::int64_t> send_bytes,
                            std::span<const std::int64_t> send_offsets, void* output,
                            std::span<const std::int64_t> receive_bytes,
                            std::span<const std::int64_t> receive_offsets, Stream& stream) = 0;
  /// Sends and receives that start together and end together; none waits for another of the group.
  /// The n-th message to oneself is copied into the n-th receive from oneself of the same exchange.
  /// Empty messages are left out. A message that is longer or shorter than its receive is a
  /// CommunicationError. Exchanges of one stream may be under way together unless they touch the
  /// same memory; everything else on a stream waits for what was put on it before.
  virtual void exchange(std::span<const Message> messages, Channel channel, Stream& stream) = 0;

  /// Waits, at most the limit, until all members have come.
  virtual void barrier() = 0;
  virtual double timeout_seconds() const = 0;
  virtual void set_timeout_seconds(double seconds) = 0;  ///< subgroups share it
  virtual const Traffic& traffic() const = 0;            ///< subgroups share it
  virtual void reset_traffic() = 0;
  /// Ends every process of the job with this exit code; does not return.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

/// What a process of the CPU backend has: its device, its kernels, its peers.
struct CpuProcess {
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> world;
  int node_rank = 0;   ///< of this process among the job's processes of its node
  int node_ranks = 1;  ///< how many these are
};

/// Starts MPI if need be (a process that mpirun or srun did not start is a world of one) and makes
/// this process's device. `threads` 0: the cores this process may use, shared among the ranks of
/// its node, at least 1. Throws InputError for a HYDRAULIS_TIMEOUT_SECONDS that is no time limit.
/// Further calls give further devices and the same world. `memory_limit_bytes` 0: none but the
/// machine's. MPI ends with the process.
CpuProcess start_cpu_process(int threads = 0, std::int64_t memory_limit_bytes = 0);

/// The same for a process whose work is on a GPU. Tasks that srun started without MPI meet over TCP
/// (kernels/rendezvous), where start_cpu_process() throws InputError; their world carries what
/// hosts agree on and nothing else. Throws InputError for an environment that is not srun's,
/// Error when a task does not come in time.
CpuProcess start_host_process(int threads = 0);

}  // namespace hydraulis
