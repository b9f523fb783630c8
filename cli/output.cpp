#include "cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/atomic_file.h"
#include "base/error.h"

namespace hydraulis {
namespace {

[[noreturn]] void fail(int error) {
  if (error == EPIPE) throw OutputClosed();
  throw InputError("standard output: cannot write: {}", std::strerror(error));
}

void put_stdout(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail(errno);
}

void write_report(const CommonOptions& options, const Report& report, const TextSink& sink) {
  if (options.json) return write_json(report, sink);
  if (options.csv) return write_csv(report, sink);
  sink(to_text(report));
}

}  // namespace

void write_stdout(std::string_view text) {
  put_stdout(text);
  flush_stdout();
}

void flush_stdout() {
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) fail(errno);
}

void emit(const CommonOptions& options, const Report& report, bool to_output_file) {
  if (to_output_file && !options.output.empty()) {
    write_text_file(options.output,
                    [&](const TextSink& sink) { write_report(options, report, sink); });
  } else {
    write_report(options, report, put_stdout);
    flush_stdout();
  }
}

void refuse_same_file(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs) {
  const auto same = [](const NamedFile& x, const NamedFile& y) {
    if (x.path.empty() || y.path.empty()) return false;
    std::error_code ec;
    if (std::filesystem::equivalent(x.path, y.path, ec)) {
      return std::filesystem::is_regular_file(x.path, ec);  // /dev/null may be named twice
    }
    return std::filesystem::weakly_canonical(x.path, ec) ==
               std::filesystem::weakly_canonical(y.path, ec) &&
           !std::filesystem::exists(x.path, ec);
  };
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    std::vector<NamedFile> others(outputs.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                  outputs.end());
    others.insert(others.end(), inputs.begin(), inputs.end());
    for (const NamedFile& other : others) {
      if (same(outputs[i], other)) {
        throw InputError("{}: {} is also the file of {}; name another", outputs[i].option,
                         outputs[i].path, other.option);
      }
    }
  }
}

}  // namespace hydraulis
