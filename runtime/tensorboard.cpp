#include "runtime/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <span>

#include "base/error.h"
#include "runtime/append_file.h"
#include "runtime/crc32c.h"

namespace hydraulis {
namespace {

// Protocol buffer tags (field number · 8 + wire type) of tensorflow.Event and tensorflow.Summary.
constexpr char kWallTime = 0x09;     // Event 1, double
constexpr char kStep = 0x10;         // Event 2, varint
constexpr char kFileVersion = 0x1a;  // Event 3, string
constexpr char kSummary = 0x2a;      // Event 5, message
constexpr char kValue = 0x0a;        // Summary 1, message
constexpr char kTag = 0x0a;          // Value 1, string
constexpr char kSimpleValue = 0x15;  // Value 2, float

template <typename T>
std::string little_endian(T value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof value; ++i) {
    bytes += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
  }
  return bytes;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}

std::string delimited(char tag, const std::string& data) {
  return tag + varint(data.size()) + data;
}

std::string event_head(double wall_time) {
  return kWallTime + little_endian(std::bit_cast<std::uint64_t>(wall_time));
}

/// Checksums of data that holds checksums would be weak, so the format rotates and offsets them.
std::string masked_checksum(const std::string& data) {
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(data)));
  return little_endian(((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

}  // namespace

std::string tensorboard_record(const std::string& data) {
  const std::string length = little_endian(static_cast<std::uint64_t>(data.size()));
  return length + masked_checksum(length) + data + masked_checksum(data);
}

TensorboardWriter::TensorboardWriter(const std::filesystem::path& folder, double wall_time_seconds,
                                     const std::string& name) {
  std::error_code ec;
  std::filesystem::create_directories(folder, ec);
  if (ec) throw InputError("{}: cannot make the folder: {}", folder.string(), ec.message());
  const auto seconds = static_cast<std::int64_t>(wall_time_seconds);
  path_ = folder / fmt::format("events.out.tfevents.{:010}.{}", seconds, name);
  for (int i = 2; std::filesystem::exists(path_, ec); ++i) {
    path_ = folder / fmt::format("events.out.tfevents.{:010}.{}.{}", seconds, name, i);
  }
  fd_ = open_for_append(path_);
  append(event_head(wall_time_seconds) + delimited(kFileVersion, "brain.Event:2"));
}

TensorboardWriter::~TensorboardWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void TensorboardWriter::append(const std::string& record) {
  append_text(fd_, path_, tensorboard_record(record));
}

void TensorboardWriter::write(double wall_time_seconds, std::int64_t step,
                              const std::vector<std::pair<std::string, double>>& scalars) {
  std::string values;
  for (const auto& [tag, value] : scalars) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    values += delimited(kValue, delimited(kTag, tag) + kSimpleValue + little_endian(bits));
  }
  append(event_head(wall_time_seconds) + kStep + varint(static_cast<std::uint64_t>(step)) +
         delimited(kSummary, values));
}

}  // namespace hydraulis
