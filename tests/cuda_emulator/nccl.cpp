#include "tests/cuda_emulator/include/nccl.h"

#include <fmt/format.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/cuda_emulator/faults.h"
#include "tests/cuda_emulator/include/cuda_bf16.h"
#include "tests/cuda_emulator/memory.h"
#include "tests/cuda_emulator/streams.h"

// NOLINTBEGIN(readability-identifier-naming): NCCL's names

namespace {

using emulator::AccessKind;
using Guard = std::lock_guard<std::recursive_mutex>;

enum class Kind { all_reduce, reduce_scatter, all_gather, broadcast };
const char* const kNames[] = {"all-reduce", "reduce-scatter", "all-gather", "broadcast"};

std::size_t bytes_of(ncclDataType_t type) {
  return type == ncclInt8 ? 1 : type == ncclBfloat16 ? 2 : type == ncclFloat32 ? 4 : 8;
}

/// A rank's part of a collective.
struct Part {
  bool arrived = false;
  Kind kind = Kind::all_reduce;
  const char* from = nullptr;
  char* to = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclInt8;
  int detail = 0;  // operation or root

  std::string text() const {
    return fmt::format("{} of {} numbers of type {}, {}", kNames[static_cast<int>(kind)], count,
                       static_cast<int>(type), detail);
  }
  std::size_t from_bytes(int ranks) const {
    return count * bytes_of(type) *
           (kind == Kind::reduce_scatter ? static_cast<std::size_t>(ranks) : 1);
  }
  std::size_t to_bytes(int ranks) const {
    return count * bytes_of(type) *
           (kind == Kind::all_gather ? static_cast<std::size_t>(ranks) : 1);
  }
};

struct Collective {
  std::vector<Part> parts;
  int arrived = 0;
  bool moved = false;
  int left = 0;
};

/// One message of a grouped call; the n-th from one rank to another meets the n-th receive.
struct Letter {
  const char* from = nullptr;
  char* to = nullptr;
  std::size_t sent_bytes = 0;
  std::size_t received_bytes = 0;
  bool moved = false;  // by whoever of both comes first
};

/// A communicator of all its ranks.
struct World {
  explicit World(int n) : ranks(n) {}
  int ranks;
  std::map<std::uint64_t, Collective> collectives;  // by number
  using Key = std::tuple<int, int, std::uint64_t>;  // sender, receiver, number
  std::map<Key, std::shared_ptr<Letter>> letters;
  bool aborted = false;

  std::shared_ptr<Letter> letter(const Key& key) {
    auto& place = letters[key];
    if (place == nullptr) place = std::make_shared<Letter>();
    return place;
  }
};

std::map<std::string, std::weak_ptr<World>>& worlds() {
  static std::map<std::string, std::weak_ptr<World>> all;
  return all;
}

double number(const Part& part, const char* at, std::size_t i) {
  if (part.type == ncclFloat64) {
    double value = 0;
    std::memcpy(&value, at + 8 * i, 8);
    return value;
  }
  if (part.type == ncclFloat32) {
    float value = 0;
    std::memcpy(&value, at + 4 * i, 4);
    return static_cast<double>(value);
  }
  __nv_bfloat16 value;
  std::memcpy(&value, at + 2 * i, 2);
  return static_cast<double>(__bfloat162float(value));
}

void set_number(const Part& part, char* at, std::size_t i, double value) {
  const auto single = static_cast<float>(value);
  const __nv_bfloat16 half = __float2bfloat16_rn(single);
  if (part.type == ncclFloat64) {
    std::memcpy(at + 8 * i, &value, 8);
  } else if (part.type == ncclFloat32) {
    std::memcpy(at + 4 * i, &single, 4);
  } else {
    std::memcpy(at + 2 * i, &half, 2);
  }
}

/// Σ or max over ranks of element i of their inputs.
double reduced(const Collective& all, std::size_t i) {
  double result = number(all.parts[0], all.parts[0].from, i);
  for (std::size_t r = 1; r < all.parts.size(); ++r) {
    const double value = number(all.parts[r], all.parts[r].from, i);
    result = all.parts[0].detail == ncclSum ? result + value : std::max(result, value);
  }
  return result;
}

void move(Collective& all) {
  const Part& first = all.parts[0];
  std::vector<std::vector<char>> results;
  for (std::size_t r = 0; r < all.parts.size(); ++r) {
    const Part& part = all.parts[r];
    if (part.kind != first.kind || part.count != first.count || part.type != first.type ||
        part.detail != first.detail) {
      emulator::report(fmt::format("mismatched collective: rank 0 calls {}, rank {} {}",
                                   first.text(), r, part.text()));
      return;
    }
    std::vector<char> result(part.to_bytes(static_cast<int>(all.parts.size())));
    const std::size_t own = part.count * bytes_of(part.type);
    switch (part.kind) {
      case Kind::all_reduce:
      case Kind::reduce_scatter: {
        const std::size_t begin = part.kind == Kind::all_reduce ? 0 : r * part.count;
        for (std::size_t i = 0; i < part.count; ++i) {
          set_number(part, result.data(), i, reduced(all, begin + i));
        }
        break;
      }
      case Kind::all_gather:
        for (std::size_t s = 0; s < all.parts.size(); ++s) {
          std::memcpy(result.data() + s * own, all.parts[s].from, own);
        }
        break;
      case Kind::broadcast:
        std::memcpy(result.data(), all.parts[static_cast<std::size_t>(part.detail)].from, own);
        break;
    }
    results.push_back(std::move(result));
  }
  // Inputs may lie in outputs: all have been read by now.
  for (std::size_t r = 0; r < all.parts.size(); ++r) {
    std::memcpy(all.parts[r].to, results[r].data(), results[r].size());
  }
}

struct GroupedMessage {
  ncclComm_t communicator;
  cudaStream_t stream;
  bool is_send;
  int peer;
  char* data;
  std::size_t bytes;
};

int& group_depth() {
  thread_local int depth = 0;
  return depth;
}
std::vector<GroupedMessage>& grouped() {
  thread_local std::vector<GroupedMessage> messages;
  return messages;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<World> world;
  int rank = 0;
  std::uint64_t collectives = 0;
  std::map<int, std::uint64_t> sent, received;  // messages by peer
};

namespace {

ncclResult_t collective(Part part, ncclComm_t communicator, cudaStream_t stream) {
  const Guard guard(emulator::lock());
  if (!emulator::known(stream)) return ncclInvalidArgument;
  if (emulator::faulty()) return ncclUnhandledCudaError;
  part.arrived = true;
  const auto world = communicator->world;
  const int rank = communicator->rank;
  const std::uint64_t number = communicator->collectives++;
  const auto mine = [=]() -> Collective& {
    Collective& all = world->collectives[number];
    all.parts.resize(static_cast<std::size_t>(world->ranks));
    return all;
  };
  const auto ready = [=] {
    Collective& all = mine();
    Part& own = all.parts[static_cast<std::size_t>(rank)];
    if (!own.arrived) {
      own = part;
      ++all.arrived;
    }
    return all.arrived == world->ranks || world->aborted;
  };
  const auto run = [=] {
    if (world->aborted) return;
    const char* name = kNames[static_cast<int>(part.kind)];
    const bool reads = part.kind != Kind::broadcast || part.detail == rank;
    if (reads &&
        !emulator::touch_device(part.from, part.from_bytes(world->ranks), AccessKind::read, name)) {
      return;
    }
    if (!emulator::touch_device(part.to, part.to_bytes(world->ranks), AccessKind::write, name)) {
      return;
    }
    Collective& all = mine();
    if (!std::exchange(all.moved, true)) move(all);
    if (++all.left == world->ranks) world->collectives.erase(number);
  };
  emulator::enqueue(*stream, kNames[static_cast<int>(part.kind)], run, ready);
  return ncclSuccess;
}

/// The messages of one stream and communicator that start and end together.
void pass(ncclComm_t communicator, cudaStream_t stream,
          const std::vector<GroupedMessage>& messages) {
  struct Posted {
    GroupedMessage message;
    World::Key key;
    std::shared_ptr<Letter> letter;
  };
  const auto world = communicator->world;
  std::vector<Posted> posted;
  for (const GroupedMessage& m : messages) {
    const std::uint64_t number =
        m.is_send ? communicator->sent[m.peer]++ : communicator->received[m.peer]++;
    const int from = m.is_send ? communicator->rank : m.peer;
    const int to = m.is_send ? m.peer : communicator->rank;
    const World::Key key{from, to, number};
    posted.push_back({m, key, world->letter(key)});
  }
  const auto ready = [=] {
    bool all = true;
    for (const Posted& p : posted) {
      if (p.message.is_send) {
        p.letter->from = p.message.data;
        p.letter->sent_bytes = p.message.bytes;
      } else {
        p.letter->to = p.message.data;
        p.letter->received_bytes = p.message.bytes;
      }
      all = all && p.letter->from != nullptr && p.letter->to != nullptr;
    }
    return all || world->aborted;
  };
  const auto run = [=] {
    if (world->aborted) return;
    for (const Posted& p : posted) {
      const AccessKind kind = p.message.is_send ? AccessKind::read : AccessKind::write;
      if (!emulator::touch_device(p.message.data, p.message.bytes, kind, "a message")) return;
      Letter& letter = *p.letter;
      if (letter.sent_bytes != letter.received_bytes) {
        emulator::report(fmt::format("mismatched message: {} bytes sent, {} expected",
                                     letter.sent_bytes, letter.received_bytes));
        return;
      }
      if (letter.moved) {
        world->letters.erase(p.key);  // both have come
      } else {
        std::memcpy(letter.to, letter.from, letter.sent_bytes);
        letter.moved = true;
      }
    }
  };
  emulator::enqueue(*stream, "messages", run, ready);
}

ncclResult_t message(bool is_send, void* data, std::size_t count, ncclDataType_t type, int peer,
                     ncclComm_t communicator, cudaStream_t stream) {
  const Guard guard(emulator::lock());
  if (!emulator::known(stream)) return ncclInvalidArgument;
  if (emulator::faulty()) return ncclUnhandledCudaError;
  grouped().push_back(
      {communicator, stream, is_send, peer, static_cast<char*>(data), count * bytes_of(type)});
  if (group_depth() == 0) {
    group_depth() = 1;
    return ncclGroupEnd();
  }
  return ncclSuccess;
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Guard guard(emulator::lock());
  static std::uint64_t count = 0;
  *id = {};
  ++count;
  std::memcpy(id->internal, &count, sizeof count);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t*) {
  const Guard guard(emulator::lock());
  if (rank < 0 || rank >= ranks) return ncclInvalidArgument;
  std::weak_ptr<World>& place = worlds()[std::string(id.internal, sizeof id.internal)];
  std::shared_ptr<World> world = place.lock();
  if (world == nullptr) place = world = std::make_shared<World>(ranks);
  if (world->ranks != ranks) return ncclInvalidUsage;
  *communicator = new ncclComm;
  (*communicator)->world = std::move(world);
  (*communicator)->rank = rank;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  const Guard guard(emulator::lock());
  delete communicator;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  const Guard guard(emulator::lock());
  communicator->world->aborted = true;
  delete communicator;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* result) {
  const Guard guard(emulator::lock());
  *result = communicator->world->aborted ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const Guard guard(emulator::lock());
  if (group_depth() == 0) return ncclInvalidUsage;
  if (--group_depth() > 0) return ncclSuccess;
  std::map<std::pair<ncclComm_t, cudaStream_t>, std::vector<GroupedMessage>> lanes;
  for (const GroupedMessage& m : std::exchange(grouped(), {})) {
    lanes[{m.communicator, m.stream}].push_back(m);
  }
  for (const auto& [lane, messages] : lanes) pass(lane.first, lane.second, messages);
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return message(true, const_cast<void*>(from), count, type, peer, communicator, stream);
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return message(false, to, count, type, peer, communicator, stream);
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  return collective({false, Kind::all_reduce, static_cast<const char*>(from),
                     static_cast<char*>(to), count, type, operation},
                    communicator, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t communicator,
                               cudaStream_t stream) {
  return collective({false, Kind::reduce_scatter, static_cast<const char*>(from),
                     static_cast<char*>(to), count, type, operation},
                    communicator, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  return collective({false, Kind::all_gather, static_cast<const char*>(from),
                     static_cast<char*>(to), count, type, 0},
                    communicator, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t communicator, cudaStream_t stream) {
  return collective({false, Kind::broadcast, static_cast<const char*>(from), static_cast<char*>(to),
                     count, type, root},
                    communicator, stream);
}

// NOLINTEND(readability-identifier-naming)
