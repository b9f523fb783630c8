#include "kernels/cpu/communicator_collectives.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace hydraulis::cpu {

namespace {

/// A reduction up to this size is sent whole to everybody: one round instead of two.
constexpr std::int64_t kSmallBytes = std::int64_t{16} << 10;
/// A rank's share of one block of a large reduction.
constexpr std::int64_t kShareBytes = std::int64_t{256} << 10;

int next_lane(Group& group) {
  constexpr int lanes = (1 << kLaneBits) - kFirstCollectiveLane;
  return kFirstCollectiveLane + static_cast<int>(group.collectives++ % lanes);
}

Signature signature(const Group& group, const char* operation, std::int64_t count, int type,
                    int detail) {
  Signature s;
  std::strncpy(s.operation, operation, sizeof(s.operation) - 1);
  s.number = group.collectives;
  s.count = count;
  s.type = type;
  s.detail = detail;
  return s;
}

/// out[i] = inputs[0][i] ⊕ inputs[1][i] ⊕ …, in this order; out may be one of the inputs.
template <typename T>
void combine(const std::vector<const void*>& inputs, Reduction reduction, void* out,
             std::int64_t count) {
  constexpr std::int64_t strip = 1024;
  T sums[strip];
  for (std::int64_t begin = 0; begin < count; begin += strip) {
    const std::int64_t length = std::min(strip, count - begin);
    const auto bytes = static_cast<std::size_t>(length) * sizeof(T);
    std::memcpy(sums, static_cast<const T*>(inputs[0]) + begin, bytes);
    for (std::size_t r = 1; r < inputs.size(); ++r) {
      const T* x = static_cast<const T*>(inputs[r]) + begin;
      if (reduction == Reduction::sum) {
        for (std::int64_t i = 0; i < length; ++i) sums[i] += x[i];
      } else {
        // A NaN wins, wherever it comes from.
        for (std::int64_t i = 0; i < length; ++i) {
          sums[i] = x[i] > sums[i] || x[i] != x[i] ? x[i] : sums[i];
        }
      }
    }
    std::memcpy(static_cast<T*>(out) + begin, sums, bytes);
  }
}

void combine(DataType type, const std::vector<const void*>& inputs, Reduction reduction, void* out,
             std::int64_t count) {
  if (type == DataType::f64) {
    combine<double>(inputs, reduction, out, count);
  } else {
    combine<float>(inputs, reduction, out, count);
  }
}

/// A communication whose messages all start at once.
class AtOnce : public Operation {
 public:
  using Operation::compare_signature;
  using Operation::Operation;
  using Operation::receive;
  using Operation::scratch;
  using Operation::send;

 protected:
  bool advance() override {
    look();
    return open(0) == 0;
  }
};

class SmallAllReduce : public Operation {
 public:
  SmallAllReduce(std::shared_ptr<Group> members, void* buffer, std::int64_t count, DataType type,
                 Reduction reduction)
      : Operation(std::move(members), fmt::format("all-reduce of {} {}", count, to_string(type))),
        buffer_(buffer),
        count_(count),
        type_(type),
        reduction_(reduction) {}

  void begin(const Signature& mine, int lane) {
    const int n = group().size();
    const std::int64_t bytes = count_ * size_of(type_);
    compare_signature(mine, 0);
    auto* others = static_cast<char*>(scratch(bytes * n));
    for (int r = 0; r < n; ++r) {
      void* theirs = r == group().rank ? buffer_ : others + r * bytes;
      inputs_.push_back(theirs);
      if (r != group().rank) receive(theirs, bytes, r, lane, 0);
    }
    for (int r = 0; r < n; ++r) {
      if (r != group().rank) send(buffer_, bytes, r, lane, 0);
    }
  }

 protected:
  bool advance() override {
    look();
    if (open(0) > 0) return false;
    combine(type_, inputs_, reduction_, buffer_, count_);
    return true;
  }

 private:
  void* buffer_;
  std::int64_t count_;
  DataType type_;
  Reduction reduction_;
  std::vector<const void*> inputs_;
};

/// Elements [begin, begin + count) of a buffer.
struct Stretch {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// All-reduce and reduce-scatter in blocks. Of each block every rank owns a share: it receives the
/// others' parts of it, combines them and, in an all-reduce, sends the result to all. Steps 0, 1, …
/// are the blocks' first halves, the last step holds everything else.
class BlockedReduction : public Operation {
 public:
  struct Work {
    const void* input = nullptr;
    void* output = nullptr;
    std::int64_t count = 0;  ///< of the whole buffer (all-reduce) or of one rank's share
    DataType type = DataType::f32;
    Reduction reduction = Reduction::sum;
    bool is_all_reduce = false;
  };
  BlockedReduction(std::shared_ptr<Group> members, const Work& work)
      : Operation(std::move(members),
                  fmt::format("{} of {} {}", work.is_all_reduce ? "all-reduce" : "reduce-scatter",
                              work.count, to_string(work.type))),
        work_(work),
        element_(size_of(work.type)),
        share_(kShareBytes / element_) {}

  void begin(const Signature& mine, int lane) {
    const int n = group().size();
    lane_ = lane;
    const std::int64_t block = work_.is_all_reduce ? share_ * n : share_;
    blocks_ = (work_.count + block - 1) / block;
    set_steps(static_cast<std::size_t>(blocks_) + 1);
    compare_signature(mine, rest());
    for (auto& half : halves_) half = static_cast<char*>(scratch(kShareBytes * (n - 1)));
    for (std::int64_t b = 0; b < std::min<std::int64_t>(2, blocks_); ++b) scatter(b);
  }

 protected:
  bool advance() override {
    look();
    while (next_ < blocks_ && open(static_cast<int>(next_)) == 0) {
      reduce(next_);
      if (work_.is_all_reduce) gather(next_);
      if (next_ + 2 < blocks_) scatter(next_ + 2);
      ++next_;
    }
    return next_ == blocks_ && open(rest()) == 0;
  }

 private:
  int rest() const { return static_cast<int>(blocks_); }

  /// Rank r's share of block b, in elements of the input.
  Stretch share(std::int64_t b, int r) const {
    const int n = group().size();
    if (!work_.is_all_reduce) {
      const std::int64_t begin = b * share_;
      return {r * work_.count + begin, std::min(share_, work_.count - begin)};
    }
    const std::int64_t begin = b * share_ * n;
    const std::int64_t count = std::min(share_ * n, work_.count - begin);
    const std::int64_t from = count * r / n;
    return {begin + from, count * (r + 1) / n - from};
  }
  const char* input(const Stretch& s) const {
    return static_cast<const char*>(work_.input) + s.begin * element_;
  }
  char* output(const Stretch& s) const {
    const std::int64_t first = work_.is_all_reduce ? 0 : group().rank * work_.count;
    return static_cast<char*>(work_.output) + (s.begin - first) * element_;
  }
  char* landing(std::int64_t b, int r) const {
    return halves_[b % 2] + (r - (r > group().rank ? 1 : 0)) * kShareBytes;
  }

  void scatter(std::int64_t b) {
    const int n = group().size();
    const std::int64_t own = share(b, group().rank).count;
    for (int r = 0; r < n; ++r) {
      if (r != group().rank && own > 0) {
        receive(landing(b, r), own * element_, r, lane_, static_cast<int>(b));
      }
    }
    for (int r = 0; r < n; ++r) {
      const Stretch theirs = share(b, r);
      if (r != group().rank && theirs.count > 0) {
        send(input(theirs), theirs.count * element_, r, lane_, static_cast<int>(b));
      }
    }
  }

  void reduce(std::int64_t b) {
    const Stretch own = share(b, group().rank);
    std::vector<const void*> inputs;
    inputs.reserve(group().members.size());
    for (int r = 0; r < group().size(); ++r) {
      inputs.push_back(r == group().rank ? input(own) : landing(b, r));
    }
    combine(work_.type, inputs, work_.reduction, output(own), own.count);
  }

  void gather(std::int64_t b) {
    const Stretch own = share(b, group().rank);
    for (int r = 0; r < group().size(); ++r) {
      if (r == group().rank) continue;
      const Stretch theirs = share(b, r);
      if (theirs.count > 0) receive(output(theirs), theirs.count * element_, r, lane_, rest());
    }
    for (int r = 0; r < group().size(); ++r) {
      if (r != group().rank && own.count > 0) {
        send(output(own), own.count * element_, r, lane_, rest());
      }
    }
  }

  Work work_;
  std::int64_t element_;
  std::int64_t share_;  // elements of one rank's share of a full block
  std::int64_t blocks_ = 0;
  std::int64_t next_ = 0;  // first block that is not reduced
  int lane_ = 0;
  char* halves_[2] = {};
};

class Broadcast : public Operation {
 public:
  Broadcast(std::shared_ptr<Group> members, void* buffer, std::int64_t bytes, int root)
      : Operation(std::move(members), fmt::format("broadcast of {} bytes", bytes)),
        buffer_(buffer),
        bytes_(bytes),
        root_(root) {}

  void begin(const Signature& mine, int lane) {
    lane_ = lane;
    set_steps(2);
    compare_signature(mine, 1);
    const int n = group().size();
    const int place = (group().rank - root_ + n) % n;  // in the tree: the root is 0
    // A place's parent lacks its lowest bit; its children add a lower one.
    lowest_ = 1;
    while (lowest_ < n && (place & lowest_) == 0) lowest_ <<= 1;
    if (place != 0) receive(buffer_, bytes_, (place - lowest_ + root_) % n, lane, 0);
  }

 protected:
  bool advance() override {
    look();
    if (!forwarded_ && open(0) == 0) {
      forwarded_ = true;
      const int n = group().size();
      const int place = (group().rank - root_ + n) % n;
      for (int bit = lowest_ >> 1; bit > 0; bit >>= 1) {
        if (place + bit < n) send(buffer_, bytes_, (place + bit + root_) % n, lane_, 1);
      }
    }
    return forwarded_ && open(0) == 0 && open(1) == 0;
  }

 private:
  void* buffer_;
  std::int64_t bytes_;
  int root_;
  int lane_ = 0;
  int lowest_ = 1;
  bool forwarded_ = false;
};

class Exchange : public AtOnce {
 public:
  Exchange(std::shared_ptr<Group> members, std::span<const Message> messages, Channel channel)
      : AtOnce(std::move(members), name(messages, channel)),
        messages_(messages.begin(), messages.end()) {
    for (const auto& m : messages_) {
      if (!m.is_send && m.bytes > 0 && m.peer != group().rank) {
        receive(m.data, m.bytes, m.peer, static_cast<int>(channel), 0);
      }
    }
    for (const auto& m : messages_) {
      if (m.is_send && m.bytes > 0 && m.peer != group().rank) {
        send(m.data, m.bytes, m.peer, static_cast<int>(channel), 0);
      }
    }
  }
  bool is_exchange() const override { return true; }
  const std::vector<Message>& messages() const { return messages_; }

 private:
  static std::string name(std::span<const Message> messages, Channel channel) {
    static const char* const names[] = {"activations", "gradients", "ring",        "parameters",
                                        "reduction",   "other",     "activations", "gradients"};
    static_assert(std::size(names) == kChannels);
    return fmt::format("exchange of {} messages on channel {}", messages.size(),
                       names[static_cast<int>(channel)]);
  }
  std::vector<Message> messages_;
};

struct Proposal {
  std::int64_t members = 0;  // a hash of them
  std::int64_t context = 0;
};

}  // namespace

std::shared_ptr<Pending> start_all_reduce(const std::shared_ptr<Group>& group, void* buffer,
                                          std::int64_t count, DataType type, Reduction reduction) {
  const Signature mine =
      signature(*group, "all-reduce", count, static_cast<int>(type), static_cast<int>(reduction));
  const int lane = next_lane(*group);
  if (count * size_of(type) <= kSmallBytes) {
    auto operation = std::make_shared<SmallAllReduce>(group, buffer, count, type, reduction);
    operation->begin(mine, lane);
    return operation;
  }
  auto operation = std::make_shared<BlockedReduction>(
      group, BlockedReduction::Work{buffer, buffer, count, type, reduction, true});
  operation->begin(mine, lane);
  return operation;
}

std::shared_ptr<Pending> start_reduce_scatter(const std::shared_ptr<Group>& group,
                                              const void* input, void* output, std::int64_t count,
                                              DataType type) {
  const Signature mine = signature(*group, "reduce-scatter", count, static_cast<int>(type), -1);
  const int lane = next_lane(*group);
  auto operation = std::make_shared<BlockedReduction>(
      group, BlockedReduction::Work{input, output, count, type, Reduction::sum, false});
  operation->begin(mine, lane);
  return operation;
}

std::shared_ptr<Pending> start_all_gather(const std::shared_ptr<Group>& group, const void* input,
                                          void* output, std::int64_t count, DataType type) {
  const Signature mine = signature(*group, "all-gather", count, static_cast<int>(type), -1);
  const int lane = next_lane(*group);
  const int n = group->size();
  const std::int64_t bytes = count * size_of(type);
  auto* out = static_cast<char*>(output);
  auto operation =
      std::make_shared<AtOnce>(group, fmt::format("all-gather of {} {}", count, to_string(type)));
  operation->compare_signature(mine, 0);
  for (int r = 0; r < n; ++r) {
    if (r != group->rank) operation->receive(out + r * bytes, bytes, r, lane, 0);
  }
  for (int r = 0; r < n; ++r) {
    if (r != group->rank) operation->send(input, bytes, r, lane, 0);
  }
  char* own = out + group->rank * bytes;
  if (own != input) std::memcpy(own, input, static_cast<std::size_t>(bytes));
  return operation;
}

std::shared_ptr<Pending> start_broadcast(const std::shared_ptr<Group>& group, void* buffer,
                                         std::int64_t bytes, int root) {
  const Signature mine = signature(*group, "broadcast", bytes, -1, root);
  const int lane = next_lane(*group);
  auto operation = std::make_shared<Broadcast>(group, buffer, bytes, root);
  operation->begin(mine, lane);
  return operation;
}

std::shared_ptr<Pending> start_all_to_all_v(const std::shared_ptr<Group>& group, const void* input,
                                            std::span<const std::int64_t> send_bytes,
                                            std::span<const std::int64_t> send_offsets,
                                            void* output,
                                            std::span<const std::int64_t> receive_bytes,
                                            std::span<const std::int64_t> receive_offsets) {
  const Signature mine = signature(*group, "all-to-all", 0, -1, -1);
  const int lane = next_lane(*group);
  const auto* in = static_cast<const char*>(input);
  auto* out = static_cast<char*>(output);
  auto operation = std::make_shared<AtOnce>(group, "all-to-all");
  operation->compare_signature(mine, 0);
  // Empty messages travel too: a peer that expects more is told so.
  for (int r = 0; r < group->size(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (r != group->rank) {
      operation->receive(out + receive_offsets[i], receive_bytes[i], r, lane, 0);
    }
  }
  for (int r = 0; r < group->size(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (r != group->rank) operation->send(in + send_offsets[i], send_bytes[i], r, lane, 0);
  }
  const auto own = static_cast<std::size_t>(group->rank);
  if (send_bytes[own] > 0) {
    std::memcpy(out + receive_offsets[own], in + send_offsets[own],
                static_cast<std::size_t>(send_bytes[own]));
  }
  return operation;
}

std::shared_ptr<Pending> start_barrier(const std::shared_ptr<Group>& group) {
  const Signature mine = signature(*group, "barrier", 0, -1, -1);
  const int lane = next_lane(*group);
  auto operation = std::make_shared<AtOnce>(group, "barrier");
  operation->compare_signature(mine, 0);
  for (int r = 0; r < group->size(); ++r) {
    if (r == group->rank) continue;
    operation->receive(nullptr, 0, r, lane, 0);
    operation->send(nullptr, 0, r, lane, 0);
  }
  return operation;
}

std::shared_ptr<Pending> start_exchange(const std::shared_ptr<Group>& group,
                                        std::span<const Message> messages, Channel channel) {
  return std::make_shared<Exchange>(group, messages, channel);
}

bool conflicts(const Pending& exchange, std::span<const Message> messages) {
  const auto overlap = [](const Message& a, const Message& b) {
    if (a.is_send && b.is_send) return false;
    const auto* from_a = static_cast<const char*>(a.data);
    const auto* from_b = static_cast<const char*>(b.data);
    return from_a < from_b + b.bytes && from_b < from_a + a.bytes;
  };
  for (const auto& a : static_cast<const Exchange&>(exchange).messages()) {
    for (const auto& b : messages) {
      if (overlap(a, b)) return true;
    }
  }
  return false;
}

int agree_on_context(const std::shared_ptr<Group>& group) {
  Job& job = *group->job;
  std::uint64_t hash = 1469598103934665603ULL;  // FNV-1a
  for (const int member : group->members) {
    hash = (hash ^ static_cast<std::uint64_t>(member)) * 1099511628211ULL;
  }
  const auto n = static_cast<std::size_t>(group->size());
  const auto me = static_cast<std::size_t>(group->rank);
  auto operation = std::make_shared<AtOnce>(group, "making a subgroup");
  auto* proposals =
      static_cast<Proposal*>(operation->scratch(static_cast<std::int64_t>(n * sizeof(Proposal))));
  proposals[me] = {static_cast<std::int64_t>(hash), job.next_context};
  for (int r = 0; r < group->size(); ++r) {
    if (r == group->rank) continue;
    operation->receive(&proposals[static_cast<std::size_t>(r)], sizeof(Proposal), r, kSubgroupLane,
                       0);
    operation->send(&proposals[me], sizeof(Proposal), r, kSubgroupLane, 0);
  }
  start(operation);
  wait_for(*operation);
  std::int64_t context = 0;
  for (std::size_t r = 0; r < n; ++r) {
    if (proposals[r].members != proposals[me].members) {
      job.failed = true;
      throw CommunicationError(
          fmt::format("rank {}: making a subgroup of ranks {}: rank {} makes another one now",
                      job.rank, fmt::join(group->members, ","), group->members[r]));
    }
    context = std::max(context, proposals[r].context);
  }
  if (context >= job.contexts) {
    throw CommunicationError(
        fmt::format("rank {}: more than {} subgroups were made", job.rank, job.contexts));
  }
  job.next_context = static_cast<int>(context) + 1;
  return static_cast<int>(context);
}

}  // namespace hydraulis::cpu
