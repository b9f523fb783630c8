#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hydraulis {

/// CRC-32C (Castagnoli) of the bytes, continuing from `crc`, the checksum of what came before
/// (0: nothing). crc32c("123456789") = 0xe3069283 (RFC 3720).
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);

}  // namespace hydraulis
