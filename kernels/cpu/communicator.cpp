#include "kernels/cpu/communicator.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels/cpu/communicator_collectives.h"

namespace hydraulis {

std::int64_t Traffic::total() const {
  return std::accumulate(std::begin(point_to_point), std::end(point_to_point),
                         all_reduce + all_gather + reduce_scatter + broadcast + all_to_all);
}

}  // namespace hydraulis

namespace hydraulis::cpu {

namespace {

void require(bool right, const char* what) {
  if (!right) throw std::logic_error(fmt::format("communicator: {}", what));
}

void require_summable(DataType type) {
  require(type == DataType::f32 || type == DataType::f64, "the CPU backend adds f32 and f64 only");
}

void copy(void* to, const void* from, std::int64_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

class CpuCommunicator : public Communicator {
 public:
  explicit CpuCommunicator(std::shared_ptr<Group> group) : group_(std::move(group)) {}

  int rank() const override { return group_->rank; }
  int size() const override { return group_->size(); }

  std::unique_ptr<Communicator> subgroup(std::span<const int> ranks) override {
    auto group = std::make_shared<Group>();
    group->job = group_->job;
    group->context = group_->context;
    group->rank = -1;
    std::vector<bool> taken(static_cast<std::size_t>(size()));
    for (const int r : ranks) {
      require(r >= 0 && r < size(), "a subgroup of ranks that there are not");
      require(!taken[static_cast<std::size_t>(r)], "a subgroup with a rank twice");
      taken[static_cast<std::size_t>(r)] = true;
      if (r == rank()) group->rank = group->size();
      group->members.push_back(group_->members[static_cast<std::size_t>(r)]);
    }
    require(group->rank >= 0, "a subgroup is made by its members only");
    if (group->size() > 1) group->context = agree_on_context(group);
    return std::make_unique<CpuCommunicator>(std::move(group));
  }

  void all_reduce(void* buffer, std::int64_t count, DataType type, Reduction reduction,
                  Stream& stream) override {
    require(count >= 0, "a negative count");
    require_summable(type);
    CpuStream& mine = drained(stream);
    if (alone() || skip_empty(count)) return;
    traffic().all_reduce += 2 * count * size_of(type) * (size() - 1) / size();
    run(mine, start_all_reduce(group_, buffer, count, type, reduction));
  }

  void reduce_scatter(const void* input, void* output, std::int64_t count, DataType type,
                      Stream& stream) override {
    require(count >= 0, "a negative count");
    require_summable(type);
    CpuStream& mine = drained(stream);
    if (alone()) return copy(output, input, count * size_of(type));
    if (skip_empty(count)) return;
    traffic().reduce_scatter += (size() - 1) * count * size_of(type);
    run(mine, start_reduce_scatter(group_, input, output, count, type));
  }

  void all_gather(const void* input, void* output, std::int64_t count, DataType type,
                  Stream& stream) override {
    require(count >= 0, "a negative count");
    CpuStream& mine = drained(stream);
    if (alone()) return copy(output, input, count * size_of(type));
    if (skip_empty(count)) return;
    traffic().all_gather += (size() - 1) * count * size_of(type);
    run(mine, start_all_gather(group_, input, output, count, type));
  }

  void broadcast(void* buffer, std::int64_t bytes, int root, Stream& stream) override {
    require(bytes >= 0, "a negative count");
    require(root >= 0 && root < size(), "a root that there is not");
    CpuStream& mine = drained(stream);
    if (alone() || skip_empty(bytes)) return;
    if (root == rank()) traffic().broadcast += bytes;
    run(mine, start_broadcast(group_, buffer, bytes, root));
  }

  void all_to_all_v(const void* input, std::span<const std::int64_t> send_bytes,
                    std::span<const std::int64_t> send_offsets, void* output,
                    std::span<const std::int64_t> receive_bytes,
                    std::span<const std::int64_t> receive_offsets, Stream& stream) override {
    const auto n = static_cast<std::size_t>(size());
    require(send_bytes.size() == n && send_offsets.size() == n && receive_bytes.size() == n &&
                receive_offsets.size() == n,
            "all-to-all needs a count and an offset for each rank");
    const auto own = static_cast<std::size_t>(rank());
    require(send_bytes[own] == receive_bytes[own],
            "all-to-all: a rank sends itself as much as it receives from itself");
    for (std::size_t r = 0; r < n; ++r) {
      require(send_bytes[r] >= 0 && receive_bytes[r] >= 0, "a negative count");
      if (r != own) traffic().all_to_all += send_bytes[r];
    }
    CpuStream& mine = drained(stream);
    if (alone()) {
      return copy(static_cast<char*>(output) + receive_offsets[0],
                  static_cast<const char*>(input) + send_offsets[0], send_bytes[0]);
    }
    run(mine, start_all_to_all_v(group_, input, send_bytes, send_offsets, output, receive_bytes,
                                 receive_offsets));
  }

  void exchange(std::span<const Message> messages, Channel channel, Stream& stream) override {
    for (const auto& m : messages) {
      require(m.peer >= 0 && m.peer < size(), "a message to a rank that there is not");
      require(m.bytes >= 0, "a message of negative length");
    }
    auto& mine = static_cast<CpuStream&>(stream);
    wait_for_conflicts(mine, messages);
    copy_own(messages);
    bool has_others = false;
    for (const auto& m : messages) {
      if (m.peer == rank() || m.bytes == 0) continue;
      has_others = true;
      if (m.is_send) traffic().of(channel) += m.bytes;
    }
    if (has_others) run(mine, start_exchange(group_, messages, channel));
  }

  void barrier() override {
    if (alone()) return;
    auto pending = start_barrier(group_);
    start(pending);
    wait_for(*pending);
  }

  double timeout_seconds() const override { return group_->job->timeout_seconds; }
  void set_timeout_seconds(double seconds) override {
    require(seconds > 0, "a time limit that is not positive");
    group_->job->timeout_seconds = seconds;
  }
  const Traffic& traffic() const override { return group_->job->traffic; }
  void reset_traffic() override { group_->job->traffic = {}; }

  [[noreturn]] void abort(int exit_code) override {
    std::fflush(nullptr);
    if (group_->job->world != MPI_COMM_NULL) MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

 private:
  bool alone() const { return size() == 1; }
  /// Members that do something else meanwhile are found out by the next collective's number.
  bool skip_empty(std::int64_t count) {
    if (count == 0) ++group_->collectives;
    return count == 0;
  }
  Traffic& traffic() { return group_->job->traffic; }

  static void run(CpuStream& stream, std::shared_ptr<Pending> pending) {
    stream.add(pending);
    start(std::move(pending));
  }

  /// Exchanges of one stream may be under way together, as long as they do not touch the same
  /// memory; all else on the stream comes first.
  static void wait_for_conflicts(CpuStream& stream, std::span<const Message> messages) {
    for (const auto& pending : stream.pending()) {
      if (pending->ended()) continue;
      if (!pending->is_exchange() || conflicts(*pending, messages)) return stream.drain();
    }
    if (communicating()) progress();
  }

  /// The n-th message to oneself goes into the n-th receive from oneself.
  void copy_own(std::span<const Message> messages) const {
    std::vector<const Message*> sends;
    std::vector<const Message*> receives;
    for (const auto& m : messages) {
      if (m.peer == rank()) (m.is_send ? sends : receives).push_back(&m);
    }
    bool match = sends.size() == receives.size();
    for (std::size_t i = 0; match && i < sends.size(); ++i) {
      match = sends[i]->bytes == receives[i]->bytes;
    }
    if (!match) {
      throw CommunicationError(fmt::format(
          "rank {}: exchange: messages to oneself do not match the receives of the same "
          "exchange",
          group_->job->rank));
    }
    for (std::size_t i = 0; i < sends.size(); ++i) {
      copy(receives[i]->data, sends[i]->data, sends[i]->bytes);
    }
  }

  std::shared_ptr<Group> group_;
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Group> group) {
  return std::make_unique<CpuCommunicator>(std::move(group));
}

}  // namespace hydraulis::cpu
