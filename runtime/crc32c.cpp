#include "runtime/crc32c.h"

#include <array>
#include <cstring>

namespace hydraulis {
namespace {

constexpr std::uint32_t kReversedPolynomial = 0x82f63b78;

/// tables[k][b]: what byte b does to the checksum with k more bytes after it.
constexpr auto make_tables() {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc & 1) != 0 ? (crc >> 1) ^ kReversedPolynomial : crc >> 1;
    }
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}
constexpr auto kTables = make_tables();

std::uint32_t by_tables(const std::byte* data, std::size_t size, std::uint32_t crc) {
  for (; size >= 8; data += 8, size -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, 8);
    word ^= crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; size > 0; ++data, --size) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<std::uint32_t>(*data)) & 0xff];
  }
  return crc;
}

#if defined(__x86_64__)
/// The processor's own instruction computes the same about eight times as fast.
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(const std::byte* data,
                                                               std::size_t size,
                                                               std::uint32_t crc) {
  std::uint64_t wide = crc;
  for (; size >= 8; data += 8, size -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  crc = static_cast<std::uint32_t>(wide);
  for (; size > 0; ++data, --size) {
    crc = __builtin_ia32_crc32qi(crc, static_cast<unsigned char>(*data));
  }
  return crc;
}
#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~by_instruction(bytes.data(), bytes.size(), ~crc);
#endif
  return ~by_tables(bytes.data(), bytes.size(), ~crc);
}

}  // namespace hydraulis
