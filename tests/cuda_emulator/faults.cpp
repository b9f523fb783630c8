#include "tests/cuda_emulator/faults.h"

#include <utility>

namespace emulator {

namespace {
std::string& first() {
  static std::string text;
  return text;
}
}  // namespace

void report(const std::string& fault) {
  if (first().empty()) first() = fault;
}
bool faulty() { return !first().empty(); }
const std::string& fault() { return first(); }
std::string take_fault() { return std::exchange(first(), {}); }

}  // namespace emulator
