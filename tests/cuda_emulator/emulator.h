#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "tests/cuda_emulator/faults.h"
#include "tests/cuda_emulator/memory.h"
#include "tests/cuda_emulator/streams.h"

// What tests need of the emulator.
namespace emulator {

/// Runs a program under several seeds: unlike orders of streams, blocks and threads.
inline void with_seeds(int seeds, const std::function<void()>& program) {
  for (int seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    set_seed(static_cast<std::uint64_t>(seed));
    program();
    ASSERT_EQ(take_fault(), "");
    if (testing::Test::HasFatalFailure()) return;
  }
}

/// The first fault of a program that throws, whichever seed shows it.
inline std::string fault_of(const std::function<void()>& program, int seeds = 6) {
  for (int seed = 0; seed < seeds; ++seed) {
    set_seed(static_cast<std::uint64_t>(seed));
    try {
      program();
    } catch (const std::exception&) {
      // The fault says why.
    }
    std::string fault = take_fault();
    if (!fault.empty()) return fault;
  }
  return {};
}

}  // namespace emulator
