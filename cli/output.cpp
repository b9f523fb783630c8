#include "cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/atomic_file.h"
#include "base/error.h"

namespace hydraulis {
namespace {

[[noreturn]] void fail(int error) {
  if (error == EPIPE) throw OutputClosed();
  throw InputError("standard output: cannot write: {}", std::strerror(error));
}

std::string rendered(const CommonOptions& options, const Report& report) {
  if (options.json) return to_text(report.json);
  if (options.csv) return report.tables.empty() ? "" : to_csv(report.tables.front());
  return to_text(report);
}

}  // namespace

void write_stdout(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail(errno);
  flush_stdout();
}

void flush_stdout() {
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) fail(errno);
}

void emit(const CommonOptions& options, const Report& report, bool to_output_file) {
  const std::string text = rendered(options, report);
  if (to_output_file && !options.output.empty()) {
    write_text_file(options.output, text);
  } else {
    write_stdout(text);
  }
}

}  // namespace hydraulis
