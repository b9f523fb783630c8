#include "tests/cuda_emulator/include/nccl.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda_emulator/faults.h"
#include "tests/cuda_emulator/mailbox.h"
#include "tests/cuda_emulator/memory.h"
#include "tests/cuda_emulator/nccl_world.h"
#include "tests/cuda_emulator/streams.h"

// NOLINTBEGIN(readability-identifier-naming): NCCL's names

namespace {

using emulator::AccessKind;
using namespace emulator::nccl;  // NOLINT(google-build-using-namespace): the other half
using Guard = std::lock_guard<std::recursive_mutex>;

std::map<std::string, std::weak_ptr<World>>& worlds() {
  static std::map<std::string, std::weak_ptr<World>> all;
  return all;
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
      if (emulator::mailbox::used()) post_part(*world, part, rank, number);
    }
    if (emulator::mailbox::used()) take_parts(*world, all, rank, number);
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
    if (emulator::mailbox::used()) {
      move(all, static_cast<std::size_t>(rank), static_cast<std::size_t>(rank) + 1);
      world->collectives.erase(number);
      return;
    }
    if (!std::exchange(all.moved, true)) move(all, 0, all.parts.size());
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
    std::string name;  ///< between processes
  };
  const auto world = communicator->world;
  std::vector<Posted> posted;
  for (const GroupedMessage& m : messages) {
    const std::uint64_t number =
        m.is_send ? communicator->sent[m.peer]++ : communicator->received[m.peer]++;
    const int from = m.is_send ? communicator->rank : m.peer;
    const int to = m.is_send ? m.peer : communicator->rank;
    const World::Key key{from, to, number};
    posted.push_back({m, key, world->letter(key), letter_name(*world, "m", number, from, to)});
  }
  const auto ready = [=] {
    bool all = true;
    for (const Posted& p : posted) {
      if (p.message.is_send) {
        p.letter->from = p.message.data;
        p.letter->sent_bytes = p.message.bytes;
        if (emulator::mailbox::used()) leave(*p.letter, p.name);
      } else {
        p.letter->to = p.message.data;
        p.letter->received_bytes = p.message.bytes;
        if (emulator::mailbox::used()) find(*p.letter, p.name);
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
      if (emulator::mailbox::used()) {
        if (!p.message.is_send) std::memcpy(letter.to, letter.from, letter.sent_bytes);
        world->letters.erase(p.key);
      } else if (letter.moved) {
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
  const pid_t process = getpid();
  std::memcpy(id->internal + sizeof count, &process, sizeof process);
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
  if (emulator::mailbox::used()) join(*world, id, rank);
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
    communicator->joins = !all_joined(world);
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
