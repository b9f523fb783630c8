#include <algorithm>

#include "base/error.h"
#include "traces/import/importer.h"
#include "traces/import/line_reader.h"
#include "traces/import/number.h"

namespace hydraulis {

void import_histogram(const ImportOptions& options, LengthCollector& collector,
                      ImportReport& report) {
  // A few bytes of text can ask for any number of documents; 2^28 of them are 1 GiB in memory.
  constexpr std::uint64_t kMostDocuments = 1u << 28;
  LineReader reader(options.input, 4096);
  std::string_view line;
  bool first = true;
  while (reader.next(line)) {
    line = trimmed(line);
    if (line.empty()) continue;
    const std::size_t comma = line.find(',');
    std::uint32_t length = 0;
    std::uint64_t count = 0;
    const bool good = comma != std::string_view::npos &&
                      parse_number(trimmed(line.substr(0, comma)), length) &&
                      parse_number(trimmed(line.substr(comma + 1)), count);
    // A first line that does not begin with a digit is a header.
    const bool header = first && !good && (line.front() < '0' || line.front() > '9') &&
                        line.front() != '-' && line.front() != '+';
    first = false;
    if (header) continue;
    if (!good) {
      if (options.skip_bad_lines) {
        ++report.bad_lines;
        continue;
      }
      throw InputError("{}: line {}: '{}' is not a pair of integers, expected length,count",
                       options.input.string(), reader.number(), excerpt(line));
    }
    if (count > kMostDocuments - std::min(kMostDocuments, report.documents_read)) {
      throw InputError("{}: line {}: the counts add up to more than {} documents",
                       options.input.string(), reader.number(), kMostDocuments);
    }
    collector.add_repeated(length, count);
  }
  report.notes.push_back("a histogram has no corpus order: documents stand in the file's order");
}

}  // namespace hydraulis
