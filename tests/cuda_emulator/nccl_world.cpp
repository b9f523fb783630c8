#include "tests/cuda_emulator/nccl_world.h"

#include <fmt/format.h>
#include <sys/types.h>

#include <algorithm>
#include <cstring>

#include "tests/cuda_emulator/faults.h"
#include "tests/cuda_emulator/include/cuda_bf16.h"
#include "tests/cuda_emulator/mailbox.h"

namespace emulator::nccl {

namespace {

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

/// What rank r gets.
std::vector<char> result_of(const Collective& all, std::size_t r) {
  const Part& part = all.parts[r];
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
  return result;
}

}  // namespace

std::string Part::text() const {
  return fmt::format("{} of {} numbers of type {}, {}", kNames[static_cast<int>(kind)], count,
                     static_cast<int>(type), detail);
}

void move(Collective& all, std::size_t begin, std::size_t end) {
  const Part& first = all.parts[0];
  std::vector<std::vector<char>> results;
  for (std::size_t r = 0; r < all.parts.size(); ++r) {
    const Part& part = all.parts[r];
    if (part.kind != first.kind || part.count != first.count || part.type != first.type ||
        part.detail != first.detail) {
      report(fmt::format("mismatched collective: rank 0 calls {}, rank {} {}", first.text(), r,
                         part.text()));
      return;
    }
    if (begin <= r && r < end) results.push_back(result_of(all, r));
  }
  // Inputs may lie in outputs: all have been read by now.
  for (std::size_t i = 0; i < results.size(); ++i) {
    std::memcpy(all.parts[begin + i].to, results[i].data(), results[i].size());
  }
}

std::string letter_name(const World& world, const char* what, std::uint64_t number, int from,
                        int to) {
  return fmt::format("{}-{}{}-{}-{}", world.name, what, number, from, to);
}

void post_part(const World& world, const Part& part, int rank, std::uint64_t number) {
  const bool has_input = part.kind != Kind::broadcast || part.detail == rank;
  for (int r = 0; r < world.ranks; ++r) {
    if (r == rank) continue;
    mailbox::post(letter_name(world, "c", number, rank, r), &part, sizeof part, part.from,
                  has_input ? part.from_bytes(world.ranks) : 0);
  }
}

void take_parts(const World& world, Collective& all, int rank, std::uint64_t number) {
  all.letters.resize(static_cast<std::size_t>(world.ranks));
  for (int r = 0; r < world.ranks; ++r) {
    Part& part = all.parts[static_cast<std::size_t>(r)];
    std::vector<char>& letter = all.letters[static_cast<std::size_t>(r)];
    if (part.arrived) continue;
    if (!mailbox::take(letter_name(world, "c", number, r, rank), letter)) return;
    std::memcpy(&part, letter.data(), sizeof part);
    part.from = letter.data() + sizeof part;
    ++all.arrived;
  }
}

void leave(Letter& letter, const std::string& name) {
  if (letter.to != nullptr) return;
  mailbox::post(name, nullptr, 0, letter.from, letter.sent_bytes);
  letter.to = const_cast<char*>(letter.from);
  letter.received_bytes = letter.sent_bytes;
}

void find(Letter& letter, const std::string& name) {
  if (letter.from != nullptr || !mailbox::take(name, letter.copy)) return;
  letter.sent_bytes = letter.copy.size();
  letter.from = letter.copy.data();
}

void join(World& world, const ncclUniqueId& id, int rank) {
  std::uint64_t count = 0;
  pid_t process = 0;
  std::memcpy(&count, id.internal, sizeof count);
  std::memcpy(&process, id.internal + sizeof count, sizeof process);
  world.name = fmt::format("{}.{}", process, count);
  mailbox::post(letter_name(world, "j", 0, rank, 0), nullptr, 0, nullptr, 0);
}

bool all_joined(const World& world) {
  if (!mailbox::used()) return world.joined >= world.ranks;
  for (int r = 0; r < world.ranks; ++r) {
    if (!mailbox::has(letter_name(world, "j", 0, r, 0))) return false;
  }
  return true;
}

}  // namespace emulator::nccl
