#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.h"
#include "report/report.h"

namespace hydraulis {

/// Standard output is a pipe whose reader has gone (`hydraulis … | head`): nothing is left to do
/// and nothing is wrong, so main() ends quietly.
class OutputClosed : public std::runtime_error {
 public:
  OutputClosed() : std::runtime_error("standard output was closed by its reader") {}
};

/// Writes the whole text to standard output and flushes it. Throws OutputClosed, or InputError
/// when it cannot be written (a full disk, a closed descriptor).
void write_stdout(std::string_view text);

/// Flushes what was written with stdio; errors as write_stdout().
void flush_stdout();

/// A file that an option names, for refuse_same_file().
struct NamedFile {
  std::string option;
  std::string path;  ///< empty: not given
};

/// Throws InputError when an output file is also another output or an input: writing it would
/// destroy the other.
void refuse_same_file(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs);

/// Prints the report in the form the options ask for (text, --json, --csv), to standard output or,
/// atomically, to the file of -o. Commands whose -o is another file (plan, trace import) print with
/// `to_output_file` false.
void emit(const CommonOptions& options, const Report& report, bool to_output_file = true);

}  // namespace hydraulis
