#pragma once

#include <string>

// What a kernel or a call did wrong. Like a CUDA context after a failed kernel, the emulator does
// no more work once there is a fault, and every call fails until a test takes it.
namespace emulator {

/// Keeps the first fault; later ones are its consequences.
void report(const std::string& fault);
bool faulty();
/// The fault's text, empty if there is none.
const std::string& fault();
/// Returns the text, and the emulator works again.
std::string take_fault();

}  // namespace emulator
