#include "base/random.h"

namespace hydraulis {
namespace {

std::uint64_t splitmix(std::uint64_t& x) {
  x += 0x9e3779b97f4a7c15ULL;
  std::uint64_t z = x;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

std::uint64_t rotate_left(std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

}  // namespace

Random::Random(std::uint64_t seed) : Random(seed, 0) {}

Random::Random(std::uint64_t seed, std::uint64_t stream) {
  std::uint64_t x = seed;
  x = splitmix(x) ^ (stream * 0xd1342543de82ef95ULL);
  for (auto& word : state_) word = splitmix(x);
}

std::uint64_t Random::next() {
  const std::uint64_t result = rotate_left(state_[1] * 5, 7) * 9;
  const std::uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = rotate_left(state_[3], 45);
  return result;
}

double Random::uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

std::uint64_t Random::below(std::uint64_t bound) {
  // Rejects the incomplete last interval, so every value is equally likely.
  const std::uint64_t limit = -bound % bound;
  std::uint64_t value = next();
  while (value < limit) value = next();
  return value % bound;
}

}  // namespace hydraulis
