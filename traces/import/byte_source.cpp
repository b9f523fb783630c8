#include "traces/import/byte_source.h"

#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr std::size_t kInputBlock = 1u << 18;

class PlainSource : public ByteSource {
 public:
  explicit PlainSource(const std::filesystem::path& path)
      : name_(path.string()), in_(path, std::ios::binary) {
    if (!in_) throw InputError("{}: cannot open: {}", name_, std::strerror(errno));
  }
  std::size_t read(std::span<char> buffer) override {
    if (in_.eof()) return 0;
    in_.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    if (in_.bad()) throw InputError("{}: cannot read: {}", name_, std::strerror(errno));
    const auto count = static_cast<std::size_t>(in_.gcount());
    position_ += count;
    return count;
  }
  std::uint64_t file_position() const override { return position_; }

 private:
  std::string name_;
  std::ifstream in_;
  std::uint64_t position_ = 0;
};

/// What both decompressors share: a block of the compressed file.
class CompressedSource : public ByteSource {
 public:
  explicit CompressedSource(const std::filesystem::path& path)
      : name_(path.string()), file_(path), block_(kInputBlock) {}
  std::uint64_t file_position() const override { return file_.file_position(); }

 protected:
  /// Fetches the next compressed bytes; false at the file's end.
  bool refill() {
    begin_ = 0;
    end_ = file_.read(block_);
    return end_ > 0;
  }
  std::string name_;
  PlainSource file_;
  std::vector<char> block_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

class GzipSource : public CompressedSource {
 public:
  explicit GzipSource(const std::filesystem::path& path) : CompressedSource(path) {
    constexpr int kGzipHeader = 15 + 16;
    if (inflateInit2(&stream_, kGzipHeader) != Z_OK) throw std::bad_alloc();
  }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;
  ~GzipSource() override { inflateEnd(&stream_); }

  std::size_t read(std::span<char> buffer) override {
    stream_.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream_.avail_out = static_cast<uInt>(buffer.size());
    while (stream_.avail_out == buffer.size()) {
      if (begin_ == end_ && !refill()) {
        if (inside_member_ || members_ == 0) {
          throw InputError("{}: the gzip stream is cut off after {} bytes", name_, file_position());
        }
        return 0;
      }
      if (!inside_member_) {  // gzip files may be concatenated
        inflateReset(&stream_);
        inside_member_ = true;
      }
      stream_.next_in = reinterpret_cast<Bytef*>(block_.data() + begin_);
      stream_.avail_in = static_cast<uInt>(end_ - begin_);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      begin_ = end_ - stream_.avail_in;
      if (status == Z_STREAM_END) {
        inside_member_ = false;
        ++members_;
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        throw InputError("{}: not a valid gzip stream: {}", name_,
                         stream_.msg != nullptr ? stream_.msg : "damaged");
      }
    }
    return buffer.size() - stream_.avail_out;
  }

 private:
  z_stream stream_{};
  bool inside_member_ = false;
  std::uint64_t members_ = 0;
};

class ZstdSource : public CompressedSource {
 public:
  explicit ZstdSource(const std::filesystem::path& path)
      : CompressedSource(path), stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr) throw std::bad_alloc();
  }
  ZstdSource(const ZstdSource&) = delete;
  ZstdSource& operator=(const ZstdSource&) = delete;
  ~ZstdSource() override { ZSTD_freeDStream(stream_); }

  std::size_t read(std::span<char> buffer) override {
    ZSTD_outBuffer out{buffer.data(), buffer.size(), 0};
    while (out.pos == 0) {
      // Decoded bytes may wait inside the decoder even when the file has ended.
      if (begin_ == end_ && !output_waiting_ && !refill()) {
        if (inside_frame_ || file_position() == 0) {
          throw InputError("{}: the zstd stream is cut off after {} bytes", name_, file_position());
        }
        return 0;
      }
      ZSTD_inBuffer in{block_.data(), end_, begin_};
      const std::size_t status = ZSTD_decompressStream(stream_, &out, &in);
      begin_ = in.pos;
      if (ZSTD_isError(status) != 0) {
        throw InputError("{}: not a valid zstd stream: {}", name_, ZSTD_getErrorName(status));
      }
      inside_frame_ = status != 0;
      output_waiting_ = inside_frame_ && out.pos == out.size;
    }
    return out.pos;
  }

 private:
  ZSTD_DStream* stream_;
  bool inside_frame_ = false;
  bool output_waiting_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> open_byte_source(const std::filesystem::path& path) {
  const std::string ending = path.extension().string();
  if (ending == ".gz") return std::make_unique<GzipSource>(path);
  if (ending == ".zst") return std::make_unique<ZstdSource>(path);
  return std::make_unique<PlainSource>(path);
}

}  // namespace hydraulis
