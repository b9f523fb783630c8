#include "kernels/rendezvous/communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "kernels/cpu/stream.h"
#include "kernels/rendezvous/combine.h"

namespace hydraulis::rendezvous {
namespace {

void require(bool right, const char* what) {
  if (!right) throw std::logic_error(fmt::format("communicator: {}", what));
}

class RendezvousCommunicator : public Communicator {
 public:
  RendezvousCommunicator(std::shared_ptr<Connection> connection, std::vector<int> members,
                         std::uint32_t group)
      : connection_(std::move(connection)), members_(std::move(members)), group_(group) {
    rank_ = static_cast<int>(std::find(members_.begin(), members_.end(), connection_->rank()) -
                             members_.begin());
    require(rank_ < size(), "a subgroup is made by its members only");
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }

  std::unique_ptr<Communicator> subgroup(std::span<const int> ranks) override {
    std::vector<int> members;
    for (const int r : ranks) {
      require(r >= 0 && r < size(), "a subgroup of ranks that there are not");
      members.push_back(members_[static_cast<std::size_t>(r)]);
    }
    std::uint32_t group = 0;
    if (members.size() > 1) {
      Frame frame{Kind::group, 0, 0, 0, std::vector<char>(members.size() * sizeof(std::int32_t))};
      std::memcpy(frame.payload.data(), members.data(), frame.payload.size());
      group = connection_
                  ->ask(frame, fmt::format("making a group of ranks {}", fmt::join(members, ",")))
                  .group;
    }
    return std::make_unique<RendezvousCommunicator>(connection_, std::move(members), group);
  }

  void all_reduce(void* buffer, std::int64_t count, DataType type, Reduction reduction,
                  Stream& stream) override {
    require(count >= 0, "a negative count");
    require(type == DataType::f32 || type == DataType::f64, "the host adds f32 and f64 only");
    cpu::drained(stream);
    if (size() == 1) return;
    const std::int64_t bytes = count * size_of(type);
    traffic().all_reduce += 2 * bytes * (size() - 1) / size();
    const Frame result = ask(
        {Kind::reduce, group_, number_++, reduction_detail(reduction, type), copied(buffer, bytes)},
        fmt::format("all-reduce of {} {}", count, to_string(type)));
    give(result, buffer, bytes);
  }

  void all_gather(const void* input, void* output, std::int64_t count, DataType type,
                  Stream& stream) override {
    require(count >= 0, "a negative count");
    cpu::drained(stream);
    const std::int64_t bytes = count * size_of(type);
    if (size() == 1) return give({Kind::result, 0, 0, 0, copied(input, bytes)}, output, bytes);
    traffic().all_gather += (size() - 1) * bytes;
    const Frame result = ask({Kind::gather, group_, number_++, 0, copied(input, bytes)},
                             fmt::format("all-gather of {} {}", count, to_string(type)));
    give(result, output, bytes * size());
  }

  void broadcast(void* buffer, std::int64_t bytes, int root, Stream& stream) override {
    require(bytes >= 0, "a negative count");
    require(root >= 0 && root < size(), "a root that there is not");
    cpu::drained(stream);
    if (size() == 1) return;
    if (root == rank()) traffic().broadcast += bytes;
    const Frame result =
        ask({Kind::broadcast, group_, number_++, root, copied(buffer, root == rank() ? bytes : 0)},
            fmt::format("broadcast of {} bytes", bytes));
    give(result, buffer, bytes);
  }

  void reduce_scatter(const void*, void*, std::int64_t, DataType, Stream&) override { refuse(); }
  void all_to_all_v(const void*, std::span<const std::int64_t>, std::span<const std::int64_t>,
                    void*, std::span<const std::int64_t>, std::span<const std::int64_t>,
                    Stream&) override {
    refuse();
  }
  void exchange(std::span<const Message>, Channel, Stream&) override { refuse(); }

  void barrier() override {
    if (size() > 1) ask({Kind::gather, group_, number_++, 0, {}}, "barrier");
  }
  double timeout_seconds() const override { return connection_->timeout_seconds; }
  void set_timeout_seconds(double seconds) override {
    require(seconds > 0, "a time limit that is not positive");
    connection_->timeout_seconds = seconds;
  }
  const Traffic& traffic() const override { return connection_->traffic; }
  void reset_traffic() override { connection_->traffic = {}; }
  [[noreturn]] void abort(int exit_code) override { connection_->abort(exit_code); }

 private:
  [[noreturn]] static void refuse() {
    throw std::logic_error("communicator: not between hosts of a job on GPUs");
  }
  static std::vector<char> copied(const void* data, std::int64_t bytes) {
    const auto* begin = static_cast<const char*>(data);
    return {begin, begin + bytes};
  }
  void give(const Frame& result, void* to, std::int64_t bytes) const {
    if (static_cast<std::int64_t>(result.payload.size()) != bytes) {
      throw CommunicationError(fmt::format("rank {}: {} bytes came, {} were expected",
                                           connection_->rank(), result.payload.size(), bytes));
    }
    std::copy(result.payload.begin(), result.payload.end(), static_cast<char*>(to));
  }
  Frame ask(const Frame& frame, const std::string& what) {
    return connection_->ask(frame,
                            size() == connection_->size()
                                ? what
                                : fmt::format("{} of ranks {}", what, fmt::join(members_, ",")));
  }
  Traffic& traffic() { return connection_->traffic; }

  std::shared_ptr<Connection> connection_;
  std::vector<int> members_;  ///< ranks of the job
  std::uint32_t group_;
  int rank_ = 0;
  std::uint64_t number_ = 0;  ///< of the next operation
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Connection> connection) {
  std::vector<int> all(static_cast<std::size_t>(connection->size()));
  std::iota(all.begin(), all.end(), 0);
  return std::make_unique<RendezvousCommunicator>(std::move(connection), std::move(all), 0);
}

}  // namespace hydraulis::rendezvous
