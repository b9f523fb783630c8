#include "base/error.h"
#include "traces/import/importer.h"
#include "traces/import/line_reader.h"
#include "traces/import/number.h"

namespace hydraulis {

void import_lines(const ImportOptions& options, LengthCollector& collector, ImportReport& report) {
  LineReader reader(options.input, 4096);
  std::string_view line;
  while (reader.next(line)) {
    line = trimmed(line);
    if (line.empty()) continue;
    std::uint32_t length = 0;
    if (!parse_number(line, length)) {
      if (options.skip_bad_lines) {
        ++report.bad_lines;
        continue;
      }
      throw InputError(
          "{}: line {}: '{}' is not a length, expected an integer from 0 to 4294967295",
          options.input.string(), reader.number(), excerpt(line));
    }
    collector.add_repeated(length, 1);
  }
}

}  // namespace hydraulis
