#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "traces/length_trace.h"
#include "traces/sampler.h"

namespace hydraulis {

/// Figures of a trace.
struct TraceStatistics {
  std::uint64_t sequences = 0;
  std::uint64_t tokens = 0;
  std::uint64_t empty_documents = 0;  ///< left out of every other figure but mean_with_empty
  double mean = 0;                    ///< tokens per sequence
  double mean_with_empty = 0;         ///< tokens per document, empty ones counted
  std::uint32_t min = 0;
  std::uint32_t max = 0;
  /// p1 p10 p25 p50 p75 p90 p95 p99 p99_9: the shortest length that at least that share of the
  /// sequences does not exceed.
  std::vector<std::pair<std::string, std::uint32_t>> quantiles;
  struct Bucket {
    std::uint64_t upto = 0;  ///< tokens, inclusive; the bucket begins after the one before
    std::uint64_t sequences = 0;
    std::uint64_t tokens = 0;
    double sequence_share = 0;  ///< of all sequences
    double token_share = 0;     ///< of all tokens
  };
  /// Powers of two from 1,024 to 1,048,576, and on to the longest sequence if that is longer.
  std::vector<Bucket> buckets;
  /// Powers of two from the shortest sequence to the longest, for drawing.
  std::vector<Bucket> octaves;
  double sum_squares = 0;  ///< of the lengths: attention work, tokens²
};

/// Throws InputError for an empty trace.
TraceStatistics compute_statistics(const LengthTrace& trace);

/// The value of a quantile by name; InputError if there is none.
std::uint32_t quantile(const TraceStatistics& statistics, const std::string& name);

/// The trace as a policy for sequences over the context leaves it, in corpus order, with what it
/// did in `counts`. Throws InputError as Sampler does.
LengthTrace apply_over_context(const LengthTrace& trace, std::uint64_t context, OverContext policy,
                               OverContextCounts& counts);

/// JSON form: sequences, tokens, mean, max, quantiles{p50…}, buckets[{upto, sequences, tokens}] and
/// more.
Json to_json(const TraceStatistics& statistics);

/// One line an octave: its upper edge, a bar for the share of sequences, one for the share of
/// tokens. `width` is the length of the longest bar in characters.
std::string draw_histogram(const TraceStatistics& statistics, int width = 30);

}  // namespace hydraulis
