#include "traces/import/line_reader.h"

#include <system_error>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr std::size_t kBlock = 1u << 18;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

std::uint64_t size_or_zero(const std::filesystem::path& path) {
  std::error_code ec;
  const auto size = std::filesystem::file_size(path, ec);
  return ec ? 0 : size;
}

}  // namespace

LineReader::LineReader(const std::filesystem::path& path, std::size_t longest_line_bytes)
    : name_(path.string()),
      longest_(longest_line_bytes),
      source_(open_byte_source(path)),
      progress_("reading " + path.filename().string(), size_or_zero(path), "bytes") {}

bool LineReader::next(std::string_view& line) {
  std::size_t searched = begin_;
  for (;;) {
    const std::size_t newline = buffer_.find('\n', searched);
    if (newline != std::string::npos || (at_end_ && begin_ < buffer_.size())) {
      const std::size_t end = newline == std::string::npos ? buffer_.size() : newline;
      line = std::string_view(buffer_).substr(begin_, end - begin_);
      begin_ = newline == std::string::npos ? end : end + 1;
      ++number_;
      if (number_ == 1 && line.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
        line.remove_prefix(kByteOrderMark.size());
      }
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      return true;
    }
    if (at_end_) return false;
    buffer_.erase(0, begin_);
    begin_ = 0;
    searched = buffer_.size();
    if (searched > longest_) {
      throw InputError("{}: line {} is longer than {} bytes, the limit for one line", name_,
                       number_ + 1, longest_);
    }
    buffer_.resize(searched + kBlock);
    const std::size_t count = source_->read(std::span(buffer_).subspan(searched));
    buffer_.resize(searched + count);
    at_end_ = count == 0;
    progress_.update(source_->file_position());
  }
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

}  // namespace hydraulis
