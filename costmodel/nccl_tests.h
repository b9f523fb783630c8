#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/operator_profile.h"

namespace hydraulis {

/// What the output of nccl-tests may leave open.
struct NcclTestsOptions {
  int ranks = 0;                        ///< that must have taken part; 0: as the file says
  int nodes = 0;                        ///< that they were on; 0: as the file's hosts say
  std::optional<Collective> operation;  ///< for output that does not name its test
  /// Bus bandwidth that no link has, bytes per second: faster points are left out and named.
  double ceiling_bytes_per_second = 2e12;
};

/// What was read.
struct NcclTestsResult {
  std::vector<CollectiveSample> samples;  ///< good points by operation, group and size
  std::vector<ExcludedPoint> excluded;    ///< failed their data check, or impossible
  bool data_check_failed = false;         ///< of some point
  std::string device;                     ///< as the file names it; may be empty
  std::string host;                       ///< of rank 0; may be empty
  std::string version;                    ///< of nccl-tests and NCCL; may be empty
  int most_ranks = 0;
  int most_nodes = 0;
  std::vector<std::string> notes;  ///< how sizes were read, what was left aside
};

/// Reads what the *_perf programs of nccl-tests print: columns as their header names them (old
/// ones: "bytes" and "N", times in ms, "error" or "res" instead of "#wrong", no "redop" or "root";
/// new ones: the statistics of -I, a timestamp), 13 or 21 columns without a header; lines with the
/// prefixes of launchers ("[1,0]<stdout>:", "0: ", "node1: "); several runs in one file. The
/// out-of-place time counts. Sizes of samples are totals; where a run's bandwidths show that its
/// sizes are of one rank they are multiplied by the ranks. A size that was measured more than once
/// gets the median. Throws InputError naming the file and line.
NcclTestsResult read_nccl_tests(const std::filesystem::path& path, const NcclTestsOptions& options);
/// The same from text; `where` names it in messages.
NcclTestsResult parse_nccl_tests(const std::string& text, const std::string& where,
                                 const NcclTestsOptions& options);

/// Puts what was read into a profile: collectives of an operation and group that the profile has
/// are replaced, excluded points and notes added, a machine without a name takes those of the file.
/// `source` names the file for people.
void add_imported(const NcclTestsResult& result, const std::string& source,
                  OperatorProfile& profile);

/// busbw / algbw as nccl-tests has them (its doc/PERFORMANCE.md), with algbw = size / time and the
/// size a total: 2(n−1)/n for all-reduce, (n−1)/n for all-gather, reduce-scatter and all-to-all, 1
/// for broadcast and send.
double bus_factor(Collective operation, int ranks);

}  // namespace hydraulis
