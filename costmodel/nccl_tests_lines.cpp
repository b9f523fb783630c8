#include "costmodel/nccl_tests_lines.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace hydraulis::detail {
namespace {

using Words = std::vector<std::string_view>;

constexpr std::size_t kMostWords = 64;

Words split(std::string_view text) {
  Words words;
  for (std::size_t begin = 0; begin < text.size() && words.size() < kMostWords;) {
    begin = text.find_first_not_of(" \t\r", begin);
    if (begin == std::string_view::npos) break;
    const std::size_t end = std::min(text.find_first_of(" \t\r", begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

template <typename Number>
std::optional<Number> number(std::string_view word) {
  Number value{};
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

bool is_whole(std::string_view word) {
  return std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
}

bool has(const Words& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// What stands behind `key`: "iters:" in "… iters: 20 …".
std::string_view after(const Words& words, std::string_view key) {
  const auto found = std::find(words.begin(), words.end(), key);
  return found == words.end() || found + 1 == words.end() ? std::string_view() : found[1];
}

/// Names of the columns up to the end of the out-of-place half, and how many there are in all.
struct Columns {
  std::vector<std::string> names;
  std::size_t half_end = 0;  ///< first column of the in-place half
};

bool is_check(std::string_view name) {
  return name == "#wrong" || name == "error" || name == "res" || name == "delta";
}

Columns columns_of(const Words& words) {
  Columns columns;
  for (const std::string_view word : words) columns.names.emplace_back(word);
  std::size_t times = 0;
  columns.half_end = columns.names.size();
  for (std::size_t i = 0; i < columns.names.size(); ++i) {
    if (columns.names[i] == "time" && ++times == 2) columns.half_end = i;
  }
  return columns;
}

Columns usual_columns(std::size_t words) {
  std::vector<std::string> names = {"size", "count", "type", "redop", "root"};
  const std::vector<std::string> half = {"time", "algbw", "busbw", "#wrong"};
  const std::vector<std::string> statistics = {"i_min", "i_max", "i_p99", "i_cv%"};
  for (int i = 0; i < 2; ++i) {
    names.insert(names.end(), half.begin(), half.end());
    if (words >= 21) names.insert(names.end(), statistics.begin(), statistics.end());
  }
  return columns_of(Words(names.begin(), names.end()));
}

/// Columns of words that a test without reduction or root leaves blank.
bool may_be_blank(std::string_view name) {
  return name == "type" || name == "redop" || name == "op" || name == "root";
}

/// What a row's data check says. `error` of old versions is the greatest difference, which rounding
/// makes of single-precision sums too; "N/A" was not checked.
void read_check(std::string_view name, std::string_view word, NcclTestsRow& row) {
  const auto value = number<double>(word);
  if (!value) return;
  constexpr double kRounding = 1e-2;  // of half precision, the greatest that old versions pass
  row.checked = true;
  row.wrong = !(std::abs(*value) <= (name == "#wrong" ? 0 : kRounding));
}

NcclTestsRow read_row(const Words& words, Columns columns, const std::string& where, int line) {
  if (columns.names.empty()) columns = usual_columns(words.size());
  // Blank fields: leave out their columns, from the last such column on.
  for (std::size_t i = columns.names.size(); i-- > 0 && words.size() < columns.names.size();) {
    if (i >= columns.half_end || !may_be_blank(columns.names[i])) continue;
    columns.names.erase(columns.names.begin() + static_cast<std::ptrdiff_t>(i));
    --columns.half_end;
  }
  // A timestamp or two words of it may follow.
  if (words.size() < columns.names.size() || words.size() > columns.names.size() + 2) {
    throw InputError("{}: line {}: {} columns, expected {}: the line is cut off or mixed up", where,
                     line, words.size(), columns.names.size());
  }
  NcclTestsRow row;
  row.line = line;
  for (std::size_t i = 0; i < columns.half_end; ++i) {
    const std::string& name = columns.names[i];
    const auto positive = [&] {
      const auto value = number<double>(words[i]);
      if (!value || !std::isfinite(*value) || *value < 0) {
        throw InputError("{}: line {}: column '{}' is '{}', expected a number of 0 or more", where,
                         line, name, words[i]);
      }
      return *value;
    };
    if (name == "size" || name == "bytes") row.bytes = number<std::int64_t>(words[i]).value_or(-1);
    if (name == "type") row.type = words[i];
    if (name == "redop" || name == "op") row.reduction = words[i];
    if (name == "time") row.time = positive();
    if (name == "algbw") row.algbw = positive();
    if (name == "busbw") row.busbw = positive();
    if (is_check(name)) read_check(name, words[i], row);
  }
  return row;
}

/// "Rank  3 Group  0 Pid 1 on   host7 device  3 [0000:18:00] NVIDIA H200": rank, host, device.
void read_device(const Words& words, NcclTestsRun& run) {
  const auto rank = number<int>(words[1]);
  if (!rank || *rank < 0) return;
  run.ranks.push_back(*rank);
  run.hosts.emplace_back(after(words, "on"));
  const auto address = std::find_if(words.begin(), words.end(),
                                    [](std::string_view word) { return word.front() == '['; });
  if (!run.device.empty() || address == words.end()) return;
  for (auto word = address + 1; word < words.end(); ++word) {
    if (!run.device.empty()) run.device += ' ';
    run.device += *word;
  }
}

void read_comment(const Words& words, NcclTestsRun& run, Columns& columns) {
  if (words.empty()) return;
  if (words[0] == "Rank" && words.size() >= 4) return read_device(words, run);
  if (has(words, "algbw") && has(words, "busbw")) {
    columns = columns_of(words);
    run.times_in_microseconds = false;
  }
  if (has(words, "(us)")) run.times_in_microseconds = true;
  if (has(words, "FAILED")) run.check_failed = true;
  if (words[0] == "nccl-tests" && words.size() >= 3) {
    run.version = "nccl-tests " + std::string(words[2]);
    for (const std::string_view word : words) {
      if (word.starts_with("nccl-library="))
        run.version += ", NCCL " + std::string(word.substr(13));
    }
  }
  for (const std::string_view word : words) {
    if (word.ends_with("_perf")) run.test = word.substr(word.rfind('/') + 1);
  }
  if (const auto iterations = number<int>(after(words, "iters:"))) {
    // "warmup iters: 5 iters: 20": the last one counts.
    run.iterations = std::max(1, *iterations);
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      if (words[i] != "iters:" || (i > 0 && (words[i - 1] == "warmup" || words[i - 1] == "agg"))) {
        continue;
      }
      run.iterations = std::max(1, number<int>(words[i + 1]).value_or(1));
    }
  }
}

/// The first line of what a *_perf program prints; which of them comes first depends on its age.
bool begins_run(const Words& words) {
  return !words.empty() && (words[0] == "nccl-tests" || words[0] == "nThread" ||
                            (words[0] == "Collective" && has(words, "starting:")));
}

}  // namespace

std::string_view without_launcher_prefix(std::string_view line) {
  const auto trim = [&] {
    const std::size_t begin = line.find_first_not_of(" \t");
    line.remove_prefix(begin == std::string_view::npos ? line.size() : begin);
  };
  trim();
  for (int i = 0; i < 3 && !line.empty() && line.front() != '#'; ++i) {
    std::size_t end = 0;
    if (line.front() == '[') {
      end = line.find(']');
      if (end == std::string_view::npos) break;
      ++end;
      if (end < line.size() && line[end] == '<') {
        end = line.find('>', end);
        if (end == std::string_view::npos) break;
        ++end;
      }
      if (end < line.size() && line[end] == ':') ++end;
    } else {
      end = line.find_first_of(": \t");
      if (end == std::string_view::npos || line[end] != ':') break;
      ++end;
    }
    line.remove_prefix(end);
    trim();
  }
  return line;
}

std::vector<NcclTestsRun> read_runs(const std::string& text, const std::string& where) {
  std::vector<NcclTestsRun> runs;
  Columns columns;
  bool in_head = false;  // lines that begin a run may follow one another
  int line = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view content =
        without_launcher_prefix(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
    ++line;
    if (content.empty()) continue;
    const bool is_comment = content.front() == '#';
    if (is_comment) content.remove_prefix(1);
    const Words words = split(content);
    if (is_comment && begins_run(words) && !in_head) {
      runs.push_back({});
      runs.back().line = line;
      columns = {};
      in_head = true;
    }
    // Other programs' lines may begin with numbers too; a row stands below a header or is whole.
    const bool is_row = !is_comment && words.size() >= (columns.names.empty() ? 13u : 3u) &&
                        is_whole(words[0]) && is_whole(words[1]);
    if (runs.empty() && (is_comment || is_row)) {
      runs.push_back({});
      runs.back().line = line;
    }
    if (is_comment) read_comment(words, runs.back(), columns);
    if (is_row) {
      in_head = false;
      runs.back().rows.push_back(read_row(words, columns, where, line));
    } else if (!runs.empty() && !is_comment && content.find("FAILED") != std::string_view::npos &&
               content.find("Out of bounds") != std::string_view::npos) {
      runs.back().check_failed = true;
    }
  }
  std::erase_if(runs,
                [](const NcclTestsRun& run) { return run.rows.empty() && run.ranks.empty(); });
  return runs;
}

}  // namespace hydraulis::detail
