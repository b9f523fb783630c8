#pragma once

#include <array>
#include <cstdint>

namespace hydraulis {

/// Seeded generator with the same output on every machine: xoshiro256** (Blackman and Vigna, 2018)
/// seeded through splitmix64. The state is plain data, so a position can be stored and restored.
class Random {
 public:
  explicit Random(std::uint64_t seed = 0);
  /// A generator for a named sub-stream: independent of how often other streams were drawn from.
  Random(std::uint64_t seed, std::uint64_t stream);

  /// Next 64 random bits.
  std::uint64_t next();
  /// Uniform in [0, 1) with 53 bits.
  double uniform();
  /// Uniform integer in [0, bound), unbiased; bound must be positive.
  std::uint64_t below(std::uint64_t bound);

  const std::array<std::uint64_t, 4>& state() const { return state_; }
  void set_state(const std::array<std::uint64_t, 4>& state) { state_ = state; }

 private:
  std::array<std::uint64_t, 4> state_;
};

}  // namespace hydraulis
