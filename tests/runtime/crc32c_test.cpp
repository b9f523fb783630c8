#include "runtime/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace hydraulis {
namespace {

std::uint32_t checksum(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

TEST(Crc32c, GivesThePublishedValues) {  // RFC 3720, B.4
  EXPECT_EQ(checksum(""), 0u);
  EXPECT_EQ(checksum("123456789"), 0xe3069283u);
  EXPECT_EQ(checksum(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(checksum(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(Crc32c, ContinuesWhereItStopped) {
  std::vector<std::byte> bytes(1000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37);
  const std::uint32_t whole = crc32c(bytes);
  for (const std::size_t cut : {0u, 1u, 7u, 8u, 9u, 500u, 999u, 1000u}) {
    const std::span<const std::byte> all(bytes);
    EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), whole) << cut;
  }
}

}  // namespace
}  // namespace hydraulis
