#include "runtime/csv_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "base/atomic_file.h"
#include "base/error.h"
#include "runtime/append_file.h"
#include "traces/import/number.h"

namespace hydraulis {
namespace {

std::string field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string row(const std::string& first, const std::vector<std::string>& values) {
  std::string text = first;
  for (const auto& value : values) text += ',' + field(value);
  return text + '\n';
}

/// Keeps the header and the whole rows up to `last_step`.
void cut_after(const std::filesystem::path& path, const std::string& header,
               std::int64_t last_step) {
  std::ifstream in(path, std::ios::binary);
  std::string line;
  if (!in || !std::getline(in, line) || line + '\n' != header) {
    throw InputError("{}: is not the log of this run: expected the columns {}", path.string(),
                     header.substr(0, header.size() - 1));
  }
  std::string kept = header;
  std::string record;
  while (std::getline(in, line) && !in.eof()) {  // the last line without an end was cut off
    record += line + '\n';
    if (std::ranges::count(record, '"') % 2 != 0) continue;  // a quoted line end
    std::int64_t step = 0;
    const bool number = parse_number(std::string_view(record).substr(0, record.find(',')), step);
    if (number && step <= last_step) kept += record;
    record.clear();
  }
  write_text_file(path, kept);
}

}  // namespace

CsvLog::CsvLog(std::filesystem::path path, const std::vector<std::string>& columns,
               std::int64_t resumed_step)
    : path_(std::move(path)), columns_(columns.size()) {
  const std::string header = row("step", columns);
  std::error_code ec;
  if (resumed_step > 0 && std::filesystem::exists(path_, ec)) {
    cut_after(path_, header, resumed_step);
  } else {
    write_text_file(path_, header);
  }
  fd_ = open_for_append(path_);
}

CsvLog::~CsvLog() {
  if (fd_ >= 0) ::close(fd_);
}

void CsvLog::write(std::int64_t step, const std::vector<std::string>& values) {
  if (values.size() != columns_) throw std::logic_error("a log row of the wrong width");
  append_text(fd_, path_, row(fmt::format("{}", step), values));
}

}  // namespace hydraulis
