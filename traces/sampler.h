#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
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
  /// With a token budget: the sequence that would exceed it is cut, so that every batch holds
  /// exactly the budget; what is cut off is counted and never trained.
  bool exact_tokens = false;
};

/// Sequences that a batch may hold.
inline constexpr std::uint64_t kMostSequencesPerBatch = 1'000'000;

/// One global batch.
struct Batch {
  /// Unique within a run: epoch * documents + index of the document in the corpus. With the split
  /// policy the pieces of all documents are counted instead of the documents, in corpus order
  /// (Sampler::document_of gives the document back).
  std::vector<std::uint64_t> ids;
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
  std::uint64_t tokens_cut_to_fit = 0;  ///< tokens that exact_tokens cut off
};

Json to_json(const SamplerPosition& position);
/// `where` names the file in messages. Throws InputError.
SamplerPosition sampler_position_from_json(const Json& json, const std::string& where);

/// Draws the batches of a run from a trace: the order depends on the seed alone, never on the
/// number of ranks. With a token budget, sequences are taken whole until the next would exceed the
/// budget; a batch holds at least one sequence. Batches run on over the end of an epoch. Tokens
/// placed + OverContextCounts::tokens_removed + tokens_cut_to_fit = tokens of the documents
/// consumed.
class Sampler {
 public:
  /// `trace` must outlive the sampler. Throws InputError for options that contradict each other,
  /// an empty trace, a sequence over the context under the policy `error` (naming the first one's
  /// position, its length and the context), and when `drop` would leave nothing.
  Sampler(const LengthTrace& trace, SamplerOptions options);
  /// Throws InputError when the token budget takes more than kMostSequencesPerBatch sequences.
  Batch next();
  const SamplerPosition& position() const { return position_; }
  /// Continues from a position of a sampler with the same trace and options; InputError if it
  /// cannot be one.
  void seek(const SamplerPosition& position);
  /// Ids per epoch: documents, or pieces of documents under the split policy.
  std::uint64_t ids_per_epoch() const;
  /// Index in the corpus of the document behind an id.
  std::uint64_t document_of(std::uint64_t id) const;

 private:
  void check_lengths() const;
  void start_epoch(std::uint64_t epoch);
  void skip_dropped();
  std::uint32_t peek() const;
  void take(std::uint32_t tokens, Batch& batch);
  std::uint32_t document() const { return order_[position_.next_in_epoch]; }
  bool over_context() const;

  const LengthTrace& trace_;
  SamplerOptions options_;
  SamplerPosition position_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint64_t> first_piece_;  ///< split policy: id of each document's first piece
};

}  // namespace hydraulis
