#include <array>
#include <system_error>

#include "base/error.h"
#include "base/progress.h"
#include "traces/import/byte_source.h"
#include "traces/import/importer.h"

namespace hydraulis {

void import_u32(const ImportOptions& options, LengthCollector& collector, ImportReport&) {
  std::error_code ec;
  const std::uint64_t size = std::filesystem::file_size(options.input, ec);
  if (ec) throw InputError("{}: cannot read: {}", options.input.string(), ec.message());
  if (size % 4 != 0) {
    throw InputError("{}: {} bytes, expected a multiple of 4 (32-bit lengths)",
                     options.input.string(), size);
  }
  const auto source = open_byte_source(options.input);
  Progress progress("reading " + options.input.filename().string(), size, "bytes");
  std::array<char, 1 << 16> block{};
  std::size_t kept = 0;  // bytes of an incomplete element at the block's beginning
  while (const std::size_t count = source->read(std::span(block).subspan(kept))) {
    const std::size_t filled = kept + count;
    std::size_t at = 0;
    for (; at + 4 <= filled; at += 4) {
      std::uint32_t length = 0;
      for (std::size_t i = 0; i < 4; ++i) {
        length |= static_cast<std::uint32_t>(static_cast<unsigned char>(block[at + i])) << (8 * i);
      }
      collector.add_repeated(length, 1);
    }
    kept = filled - at;
    for (std::size_t i = 0; i < kept; ++i) block[i] = block[at + i];
    progress.update(source->file_position());
  }
}

}  // namespace hydraulis
