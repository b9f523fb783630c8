#include <cstdint>

#include "tests/cuda_emulator/include/cuda_runtime.h"

namespace {

struct Shuffle {
  std::uint64_t value;
  unsigned source;
  std::uint64_t result;
};

void complete_shuffle(void* const parts[32], std::uint32_t mask) {
  for (unsigned l = 0; l < 32; ++l) {
    auto* own = static_cast<Shuffle*>(parts[l]);
    if (own == nullptr) continue;
    // Reading a lane that does not take part gives anything; all bits set shows.
    own->result = own->source < 32 && (mask >> own->source & 1) != 0
                      ? static_cast<const Shuffle*>(parts[own->source])->value
                      : ~std::uint64_t{0};
  }
}

struct Vote {
  bool vote;
  unsigned result;
};

void complete_ballot(void* const parts[32], std::uint32_t) {
  unsigned votes = 0;
  for (unsigned l = 0; l < 32; ++l) {
    const auto* own = static_cast<const Vote*>(parts[l]);
    if (own != nullptr && own->vote) votes |= 1U << l;
  }
  for (unsigned l = 0; l < 32; ++l) {
    if (parts[l] != nullptr) static_cast<Vote*>(parts[l])->result = votes;
  }
}

}  // namespace

void __syncwarp(std::uint32_t mask, const char* file, int line) {
  static const emulator::WarpWork work{"__syncwarp", nullptr, true};
  emulator::warp_together(work, mask, nullptr, {file, line});
}

std::uint64_t emulated_shuffle(std::uint32_t mask, std::uint64_t value, unsigned source,
                               emulator::Place place) {
  static const emulator::WarpWork work{"a shuffle", complete_shuffle};
  Shuffle part{value, source, 0};
  emulator::warp_together(work, mask, &part, place);
  return part.result;
}

unsigned emulated_ballot(std::uint32_t mask, bool vote, emulator::Place place) {
  static const emulator::WarpWork work{"a vote", complete_ballot};
  Vote part{vote, 0};
  emulator::warp_together(work, mask, &part, place);
  return part.result;
}
