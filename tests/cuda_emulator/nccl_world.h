#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/cuda_emulator/include/nccl.h"

// What the ranks of an emulated NCCL communicator have in common, and how data goes from one to
// another: in memory where ranks are threads, as letters (mailbox.h) where they are processes.
namespace emulator::nccl {

enum class Kind { all_reduce, reduce_scatter, all_gather, broadcast };
inline const char* const kNames[] = {"all-reduce", "reduce-scatter", "all-gather", "broadcast"};

inline std::size_t bytes_of(ncclDataType_t type) {
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

  std::string text() const;
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
  std::vector<std::vector<char>> letters;  ///< of ranks that are other processes
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
  bool moved = false;      // by whoever of both comes first
  std::vector<char> copy;  // that came from another process
};

/// A communicator of all its ranks.
struct World {
  explicit World(int n) : ranks(n) {}
  int ranks;
  std::string name;                                 ///< between processes
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

/// Moves the data of a collective whose parts have all come, for ranks [begin, end): those of this
/// process.
void move(Collective& all, std::size_t begin, std::size_t end);

// Between processes.

/// The name of a letter between two ranks.
std::string letter_name(const World& world, const char* what, std::uint64_t number, int from,
                        int to);
/// Leaves a rank's part of a collective for the others.
void post_part(const World& world, const Part& part, int rank, std::uint64_t number);
/// Takes what others have left for it.
void take_parts(const World& world, Collective& all, int rank, std::uint64_t number);
/// Sends a message to a process, which need not have come: then it is as if it had.
void leave(Letter& letter, const std::string& name);
/// Looks for a message of another process.
void find(Letter& letter, const std::string& name);
/// Names a communicator by its identifier and says that a rank has joined.
void join(World& world, const ncclUniqueId& id, int rank);
bool all_joined(const World& world);

}  // namespace emulator::nccl
