#include "tests/cuda_emulator/mailbox.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace emulator::mailbox {

namespace {

const char* folder() {
  static const char* const name = std::getenv("HYDRAULIS_EMULATED_NCCL");
  return name;
}

std::filesystem::path path_of(const std::string& name) {
  return std::filesystem::path(folder()) / name;
}

}  // namespace

bool used() { return folder() != nullptr; }

void post(const std::string& name, const void* head, std::size_t head_bytes, const void* data,
          std::size_t bytes) {
  const std::filesystem::path open = path_of(name + ".open-" + std::to_string(getpid()));
  {
    std::ofstream file(open, std::ios::binary);
    file.write(static_cast<const char*>(head), static_cast<std::streamsize>(head_bytes));
    file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  }
  std::filesystem::rename(open, path_of(name));
}

bool has(const std::string& name) {
  std::error_code error;
  return std::filesystem::exists(path_of(name), error);
}

bool take(const std::string& name, std::vector<char>& letter) {
  std::ifstream file(path_of(name), std::ios::binary);
  if (!file) return false;
  letter.assign(std::istreambuf_iterator<char>(file), {});
  std::filesystem::remove(path_of(name));
  return true;
}

}  // namespace emulator::mailbox
