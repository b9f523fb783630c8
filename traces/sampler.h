#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "traces/length_trace.h"

namespace hydraulis {

/// What happens to a sequence longer than the context.
enum class OverContext { error, truncate, split, drop };

/// "error", "truncate", "split" or "drop"; anything else is an InputError.
OverContext parse_over_context(const std::string& text);

/// What the over-context policy did.
struct OverContextCounts {
  std::uint64_t sequences = 0;       ///< sequences over the context met
  std::uint64_t tokens_removed = 0;  ///< tokens cut off or dropped
};

struct SamplerOptions {
  std::uint64_t tokens_per_batch =
      0;  ///< token budget; exactly one of this and sequences_per_batch is set
  std::uint64_t sequences_per_batch = 0;
  std::uint64_t context = 0;  ///< longest sequence in tokens; 0: no limit
  OverContext over_context = OverContext::error;
  bool shuffle = true;  ///< seeded permutation of each epoch
  std::uint64_t seed = 0;
};

/// One global batch.
struct Batch {
  std::vector<std::uint64_t> ids;      ///< sequence ids: unique within the run's epoch
  std::vector<std::uint32_t> lengths;  ///< tokens
  std::uint64_t tokens() const;
};

/// Where a sampler stands; plain data, serialisable.
struct SamplerPosition {
  std::uint64_t epoch = 0;
  std::uint64_t next_in_epoch = 0;  ///< documents of the epoch's order already consumed
  std::uint64_t offset_in_document =
      0;  ///< tokens of the current document already used (split policy)
  OverContextCounts counts;
};

/// Draws the batches of a run from a trace: the order depends on the seed alone, never on the
/// number of ranks. With a token budget, sequences are taken whole until the next would exceed the
/// budget; a batch holds at least one sequence.
class Sampler {
 public:
  Sampler(const LengthTrace& trace, SamplerOptions options);
  Batch next();
  const SamplerPosition& position() const { return position_; }
  void seek(const SamplerPosition& position);

 private:
  void start_epoch(std::uint64_t epoch);
  const LengthTrace& trace_;
  SamplerOptions options_;
  SamplerPosition position_;
  std::vector<std::uint32_t> order_;
};

}  // namespace hydraulis
