#include <nccl.h>
#include <sched.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/communicator.h"
#include "kernels/cuda/device.cuh"

namespace hydraulis::cuda {

namespace {

void require(bool right, const char* what) {
  if (!right) throw std::logic_error(std::string("communicator: ") + what);
}

ncclDataType_t data_type(DataType type) {
  return type == DataType::bf16 ? ncclBfloat16 : type == DataType::f32 ? ncclFloat32 : ncclFloat64;
}

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

/// What the communicators of a process share. Looks after all that is under way.
class Job : public Watch {
 public:
  Job(int job_rank, double limit) : rank(job_rank), timeout(limit) {}

  /// A call that is still in progress goes on in NCCL's own threads; see settle().
  void check_nccl(ncclResult_t result, const char* call) {
    if (result == ncclSuccess || result == ncclInProgress) return;
    throw CommunicationError("rank " + std::to_string(rank) + ": " + call + ": " +
                             ncclGetErrorString(result));
  }

  /// Waits until the last call on a communicator has done all that the host must do, such as
  /// connecting to peers that may not come.
  void settle(ncclComm_t communicator, const char* call) {
    Patience patience;
    while (true) {
      ncclResult_t result = ncclSuccess;
      check_nccl(ncclCommGetAsyncError(communicator, &result), "ncclCommGetAsyncError");
      if (result != ncclInProgress) return check_nccl(result, call);
      patience.ask(this);
      sched_yield();
    }
  }

  void look() override {
    for (const ncclComm_t communicator : communicators) {
      ncclResult_t result = ncclSuccess;
      check_nccl(ncclCommGetAsyncError(communicator, &result), "ncclCommGetAsyncError");
      if (result == ncclSuccess || result == ncclInProgress) continue;
      give_up();
      check_nccl(result, "a communication");
    }
  }
  double timeout_seconds() const override { return timeout; }
  [[noreturn]] void overdue(double waited_seconds) override {
    give_up();
    throw CommunicationError("rank " + std::to_string(rank) +
                             ": no communication has ended after " +
                             std::to_string(waited_seconds) + " s of waiting for it");
  }

  /// Ends what is under way, so that the device can be waited for.
  void give_up() {
    for (const ncclComm_t communicator : std::exchange(communicators, {})) {
      ncclCommAbort(communicator);
    }
  }

  int rank;
  double timeout;
  Traffic traffic;
  std::vector<ncclComm_t> communicators;
};
#define HYDRAULIS_NCCL_CHECK(CALL) job_->check_nccl((CALL), #CALL)

/// What NCCL runs short of in containers.
std::string shared_memory_text() {
  struct statvfs shared {};
  if (statvfs("/dev/shm", &shared) != 0) return {};
  const std::uint64_t mib = std::uint64_t{shared.f_bavail} * shared.f_frsize >> 20;
  return " (/dev/shm, where NCCL's shared memory lies, has " + std::to_string(mib) +
         " MiB free; containers need --shm-size=1g or more)";
}

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(CudaDevice& device, Device& host_device, std::shared_ptr<Job> job,
                   std::shared_ptr<Communicator> host)
      : device_(device), host_device_(host_device), job_(std::move(job)), host_(std::move(host)) {
    if (alone()) return;
    std::array<ncclUniqueId, kCommunicators> ids{};
    if (rank() == 0) {
      for (ncclUniqueId& id : ids) HYDRAULIS_NCCL_CHECK(ncclGetUniqueId(&id));
    }
    const auto host_stream = host_device_.make_stream();
    host_->broadcast(ids.data(), static_cast<std::int64_t>(sizeof ids), 0, *host_stream);
    host_device_.synchronize(*host_stream);
    try {
      HYDRAULIS_NCCL_CHECK(ncclGroupStart());
      for (std::size_t i = 0; i < kCommunicators; ++i) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        HYDRAULIS_NCCL_CHECK(
            ncclCommInitRankConfig(&communicators_[i], size(), ids[i], rank(), &config));
      }
      HYDRAULIS_NCCL_CHECK(ncclGroupEnd());
      job_->communicators.insert(job_->communicators.end(), communicators_.begin(),
                                 communicators_.end());
      for (const ncclComm_t communicator : communicators_) {
        job_->settle(communicator, "making communicators");
      }
    } catch (const CommunicationError& error) {
      throw CommunicationError(error.what() + shared_memory_text());
    }
  }

  ~NcclCommunicator() override {
    for (const ncclComm_t communicator : communicators_) {
      // Those that were given up are gone.
      if (std::erase(job_->communicators, communicator) > 0) end(communicator);
    }
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  std::unique_ptr<Communicator> subgroup(std::span<const int> ranks) override {
    return std::make_unique<NcclCommunicator>(device_, host_device_, job_, host_->subgroup(ranks));
  }

  void all_reduce(void* buffer, std::int64_t count, DataType type, Reduction reduction,
                  Stream& stream) override {
    require(count >= 0, "a negative count");
    if (alone() || count == 0) return;
    job_->traffic.all_reduce += 2 * count * size_of(type) * (size() - 1) / size();
    HYDRAULIS_NCCL_CHECK(ncclAllReduce(buffer, buffer, cuda::size(count), data_type(type),
                                       reduction == Reduction::sum ? ncclSum : ncclMax,
                                       collectives(), device_.use(stream, {buffer})));
    job_->settle(collectives(), "ncclAllReduce");
  }

  void reduce_scatter(const void* input, void* output, std::int64_t count, DataType type,
                      Stream& stream) override {
    require(count >= 0, "a negative count");
    if (alone()) return copy(output, input, count * size_of(type), stream);
    if (count == 0) return;
    job_->traffic.reduce_scatter += (size() - 1) * count * size_of(type);
    HYDRAULIS_NCCL_CHECK(ncclReduceScatter(input, output, cuda::size(count), data_type(type),
                                           ncclSum, collectives(),
                                           device_.use(stream, {input, output})));
    job_->settle(collectives(), "ncclReduceScatter");
  }

  void all_gather(const void* input, void* output, std::int64_t count, DataType type,
                  Stream& stream) override {
    require(count >= 0, "a negative count");
    if (alone()) return copy(output, input, count * size_of(type), stream);
    if (count == 0) return;
    job_->traffic.all_gather += (size() - 1) * count * size_of(type);
    HYDRAULIS_NCCL_CHECK(ncclAllGather(input, output, cuda::size(count), data_type(type),
                                       collectives(), device_.use(stream, {input, output})));
    job_->settle(collectives(), "ncclAllGather");
  }

  void broadcast(void* buffer, std::int64_t bytes, int root, Stream& stream) override {
    require(bytes >= 0, "a negative count");
    require(root >= 0 && root < size(), "a root that there is not");
    if (alone() || bytes == 0) return;
    if (root == rank()) job_->traffic.broadcast += bytes;
    HYDRAULIS_NCCL_CHECK(ncclBroadcast(buffer, buffer, cuda::size(bytes), ncclInt8, root,
                                       collectives(), device_.use(stream, {buffer})));
    job_->settle(collectives(), "ncclBroadcast");
  }

  void all_to_all_v(const void* input, std::span<const std::int64_t> send_bytes,
                    std::span<const std::int64_t> send_offsets, void* output,
                    std::span<const std::int64_t> receive_bytes,
                    std::span<const std::int64_t> receive_offsets, Stream& stream) override {
    const std::size_t n = cuda::size(size());
    require(send_bytes.size() == n && send_offsets.size() == n && receive_bytes.size() == n &&
                receive_offsets.size() == n,
            "all-to-all needs a count and an offset for each rank");
    std::vector<Message> messages;
    for (int r = 0; r < size(); ++r) {
      const std::size_t i = cuda::size(r);
      // A send only reads.
      char* from = static_cast<char*>(const_cast<void*>(input)) + send_offsets[i];
      messages.push_back({r, true, from, send_bytes[i]});
      messages.push_back(
          {r, false, static_cast<char*>(output) + receive_offsets[i], receive_bytes[i]});
      require(send_bytes[i] >= 0 && receive_bytes[i] >= 0, "a negative count");
      if (r != rank()) job_->traffic.all_to_all += send_bytes[i];
    }
    copy_own(messages, stream);
    pass(messages, alone() ? nullptr : collectives(), stream);
  }

  void exchange(std::span<const Message> messages, Channel channel, Stream& stream) override {
    for (const Message& m : messages) {
      require(m.peer >= 0 && m.peer < size(), "a message to a rank that there is not");
      require(m.bytes >= 0, "a message of negative length");
      if (m.is_send && m.peer != rank()) {
        job_->traffic.of(channel) += m.bytes;
      }
    }
    copy_own(messages, stream);
    pass(messages, communicators_[1 + static_cast<std::size_t>(channel)], stream);
  }

  void barrier() override { host_->barrier(); }
  double timeout_seconds() const override { return job_->timeout; }
  void set_timeout_seconds(double seconds) override {
    require(seconds > 0, "a time limit that is not positive");
    job_->timeout = seconds;
    host_->set_timeout_seconds(seconds);
  }
  const Traffic& traffic() const override { return job_->traffic; }
  void reset_traffic() override { job_->traffic = {}; }
  [[noreturn]] void abort(int exit_code) override {
    host_->abort(exit_code);
    std::_Exit(exit_code);
  }

 private:
  /// For collectives, then one for each channel.
  static constexpr std::size_t kCommunicators = 1 + std::size_t{kChannels};

  bool alone() const { return size() == 1; }
  ncclComm_t collectives() const { return communicators_[0]; }

  void copy(void* to, const void* from, std::int64_t bytes, Stream& stream) {
    if (to != from) device_.copy(to, from, bytes, stream);
  }

  /// The n-th message to oneself goes into the n-th receive from oneself.
  void copy_own(std::span<const Message> messages, Stream& stream) {
    std::vector<const Message*> sends;
    std::vector<const Message*> receives;
    for (const Message& m : messages) {
      if (m.peer == rank()) (m.is_send ? sends : receives).push_back(&m);
    }
    const bool match =
        std::equal(sends.begin(), sends.end(), receives.begin(), receives.end(),
                   [](const Message* a, const Message* b) { return a->bytes == b->bytes; });
    if (!match) {
      throw CommunicationError("rank " + std::to_string(job_->rank) +
                               ": exchange: messages to oneself do not match the receives of the "
                               "same exchange");
    }
    for (std::size_t i = 0; i < sends.size(); ++i) {
      copy(receives[i]->data, sends[i]->data, sends[i]->bytes, stream);
    }
  }

  /// Messages to and from others, together.
  void pass(std::span<const Message> messages, ncclComm_t communicator, Stream& stream) {
    const auto others = [&](const Message& m) { return m.peer != rank() && m.bytes > 0; };
    if (std::none_of(messages.begin(), messages.end(), others)) return;
    HYDRAULIS_NCCL_CHECK(ncclGroupStart());
    for (const Message& m : messages) {
      if (!others(m)) continue;
      const cudaStream_t on = device_.use(stream, {m.data});
      if (m.is_send) {
        HYDRAULIS_NCCL_CHECK(
            ncclSend(m.data, cuda::size(m.bytes), ncclInt8, m.peer, communicator, on));
      } else {
        HYDRAULIS_NCCL_CHECK(
            ncclRecv(m.data, cuda::size(m.bytes), ncclInt8, m.peer, communicator, on));
      }
    }
    HYDRAULIS_NCCL_CHECK(ncclGroupEnd());
    job_->settle(communicator, "messages");
  }

  /// Ends a communicator, at once where it has failed or does not end in time.
  void end(ncclComm_t communicator) const {
    try {
      if (std::uncaught_exceptions() == 0) {
        job_->check_nccl(ncclCommFinalize(communicator), "ncclCommFinalize");
        job_->settle(communicator, "ncclCommFinalize");
        ncclCommDestroy(communicator);
        return;
      }
    } catch (const CommunicationError&) {
      // Nobody waits for it any more.
    }
    ncclCommAbort(communicator);
  }

  CudaDevice& device_;
  Device& host_device_;
  std::shared_ptr<Job> job_;
  std::shared_ptr<Communicator> host_;
  std::array<ncclComm_t, kCommunicators> communicators_{};
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(Device& device, Device& host_device,
                                                std::shared_ptr<Communicator> host) {
  auto& gpu = static_cast<CudaDevice&>(device);
  auto job = std::make_shared<Job>(host->rank(), host->timeout_seconds());
  gpu.set_watch(job);
  return std::make_unique<NcclCommunicator>(gpu, host_device, std::move(job), std::move(host));
}

}  // namespace hydraulis::cuda
