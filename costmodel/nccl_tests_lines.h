#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hydraulis::detail {

/// A row of numbers of nccl-tests, its out-of-place half.
struct NcclTestsRow {
  int line = 0;
  std::int64_t bytes = 0;  ///< as printed
  std::string type;        ///< may be empty
  std::string reduction;   ///< may be empty
  double time = 0;         ///< in the run's unit
  double algbw = 0;        ///< GB/s
  double busbw = 0;        ///< GB/s
  bool checked = false;    ///< its data was compared
  bool wrong = false;      ///< and differed
};

/// One start of a *_perf program: what it says about itself and its rows.
struct NcclTestsRun {
  int line = 0;                    ///< where it begins
  std::string test;                ///< "all_reduce_perf"; empty when it does not say
  std::vector<int> ranks;          ///< as listed, one line a device
  std::vector<std::string> hosts;  ///< of those
  std::string device;
  std::string version;
  int iterations = 1;
  bool times_in_microseconds = false;  ///< the header says so
  bool check_failed = false;           ///< "Out of bounds values : 2 FAILED"
  std::vector<NcclTestsRow> rows;
};

/// The line without what a launcher put before it.
std::string_view without_launcher_prefix(std::string_view line);

/// Splits the text into runs. Throws InputError naming `where` and the line of a row that is cut
/// off or holds what is no number.
std::vector<NcclTestsRun> read_runs(const std::string& text, const std::string& where);

}  // namespace hydraulis::detail
