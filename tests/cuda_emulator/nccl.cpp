#include "tests/cuda_emulator/include/nccl.h"

#include <fmt/format.h>

#include <cstring>
#include <functional>
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
  int joined = 0;
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

namespace {

/// A rank's operations on one communicator run in the order of their calls, whatever their streams.
struct Line {
  std::uint64_t called = 0;
  std::uint64_t done = 0;
};

}  // namespace

struct ncclComm {
  std::shared_ptr<World> world;
  int rank = 0;
  std::uint64_t collectives = 0;
  std::map<int, std::uint64_t> sent, received;  // messages by peer
  std::shared_ptr<Line> line = std::make_shared<Line>();
  bool blocking = true;
  bool joins = false;         // its making is in progress
  std::uint64_t unasked = 0;  // questions about the call in progress before it is over
  std::vector<std::function<void()>> in_progress;
};

namespace {

/// Does the host's part of a call: at once, or, where calls do not block, when it has been asked
/// about often enough.
ncclResult_t proceed(ncclComm_t communicator, std::function<void()> call) {
  if (communicator->blocking) {
    call();
    return ncclSuccess;
  }
  communicator->in_progress.push_back(std::move(call));
  communicator->unasked = emulator::random_below(3);
  return ncclInProgress;
}

/// A call before the one in progress is over is a mistake of the program.
bool settled(ncclComm_t communicator) {
  const bool is = !communicator->joins && communicator->in_progress.empty();
  if (!is) emulator::report("a call on a communicator whose last call is still in progress");
  return is;
}

void enqueue(ncclComm_t communicator, cudaStream_t stream, std::string name,
             std::function<void()> run, std::function<bool()> ready) {
  const auto line = communicator->line;
  const std::uint64_t number = line->called++;
  emulator::enqueue(
      *stream, std::move(name),
      [=] {
        run();
        ++line->done;
      },
      [=] { return line->done == number && ready(); });
}

ncclResult_t collective(Part part, ncclComm_t communicator, cudaStream_t stream) {
  const Guard guard(emulator::lock());
  if (!emulator::known(stream)) return ncclInvalidArgument;
  if (emulator::faulty()) return ncclUnhandledCudaError;
  if (!settled(communicator)) return ncclInvalidUsage;
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
  return proceed(communicator, [=] {
    enqueue(communicator, stream, kNames[static_cast<int>(part.kind)], run, ready);
  });
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
  enqueue(communicator, stream, "messages", run, ready);
}

ncclResult_t message(bool is_send, void* data, std::size_t count, ncclDataType_t type, int peer,
                     ncclComm_t communicator, cudaStream_t stream) {
  const Guard guard(emulator::lock());
  if (!emulator::known(stream)) return ncclInvalidArgument;
  if (emulator::faulty()) return ncclUnhandledCudaError;
  if (!settled(communicator)) return ncclInvalidUsage;
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
                                    ncclConfig_t* config) {
  const Guard guard(emulator::lock());
  if (rank < 0 || rank >= ranks) return ncclInvalidArgument;
  std::weak_ptr<World>& place = worlds()[std::string(id.internal, sizeof id.internal)];
  std::shared_ptr<World> world = place.lock();
  if (world == nullptr) place = world = std::make_shared<World>(ranks);
  if (world->ranks != ranks) return ncclInvalidUsage;
  *communicator = new ncclComm;
  ++world->joined;
  (*communicator)->world = std::move(world);
  (*communicator)->rank = rank;
  // Where calls block, whoever uses it waits for the others instead of this.
  if (config == nullptr || config->blocking != 0) return ncclSuccess;
  (*communicator)->blocking = false;
  (*communicator)->joins = true;
  return ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  const Guard guard(emulator::lock());
  if (!settled(communicator)) return ncclInvalidUsage;
  return proceed(communicator, [] {});
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
  const World& world = *communicator->world;
  *result = ncclSuccess;
  if (world.aborted) {
    *result = ncclRemoteError;
  } else if (communicator->joins) {
    communicator->joins = world.joined < world.ranks;
    if (communicator->joins) *result = ncclInProgress;
  } else if (!communicator->in_progress.empty()) {
    *result = ncclInProgress;
    if (communicator->unasked-- == 0) {
      for (const auto& call : std::exchange(communicator->in_progress, {})) call();
      *result = ncclSuccess;
    }
  }
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
  ncclResult_t result = ncclSuccess;
  for (const auto& [lane, messages] : lanes) {
    const ncclResult_t of_lane =
        proceed(lane.first, [communicator = lane.first, stream = lane.second, list = messages] {
          pass(communicator, stream, list);
        });
    if (of_lane != ncclSuccess) result = of_lane;
  }
  return result;
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
