#pragma once

#include <cstddef>
#include <string>
#include <vector>

// What ranks that are processes of one machine send one another: letters in a folder, which
// HYDRAULIS_EMULATED_NCCL names. Without it ranks are threads and need none.
namespace emulator::mailbox {

bool used();
/// Leaves a letter, whole or not at all.
void post(const std::string& name, const void* head, std::size_t head_bytes, const void* data,
          std::size_t bytes);
/// Whether it has been left; it stays.
bool has(const std::string& name);
/// Takes a letter away; false when there is none yet.
bool take(const std::string& name, std::vector<char>& letter);

}  // namespace emulator::mailbox
