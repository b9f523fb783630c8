#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "runtime/dataset.h"
#include "traces/length_trace.h"
#include "traces/sampler.h"

namespace hydraulis {

struct WeightedSource {
  DatasetSource source;
  double weight = 1;  ///< share of the tokens drawn, relative to the other sets'
};

/// What a run trains on.
struct DataSettings {
  std::vector<WeightedSource> sets;
  SamplerOptions sampling;  ///< exact_tokens is not supported
  /// Share of each set's documents kept for validation. A document belongs to it by its place in
  /// its file alone (is_held_out), whatever the seed and the other sets.
  double held_out = 0;
  std::int64_t vocabulary = 0;  ///< token ids must be below
};

/// Reads the settings from the object `json` of a run's file: `sets` (objects with `path`,
/// `tokenizer`, `text_field`, `prompt_field`, `response_field`, `end_token`, `unit`, `weight`),
/// `tokens_per_batch` or `sequences_per_batch`, `context`, `over_context`, `shuffle`, `seed`,
/// `held_out`. Relative paths are beside the file. The vocabulary is the caller's to set. Throws
/// InputError.
DataSettings parse_data_settings(const Json& json, const std::string& file,
                                 const std::string& field);

/// True for about `share` of all numbers, spread evenly: the 64-bit mix of the number (SplitMix64)
/// is below share · 2⁶⁴.
bool is_held_out(std::uint64_t document, double share);

/// A sequence of a batch: tokens [first, first + length) of a document.
struct TrainingSequence {
  /// Unique in a run. With one data set as Sampler numbers it; with n sets, that number of set d
  /// times n plus d.
  std::uint64_t id = 0;
  std::uint32_t set = 0;       ///< index in DataSettings::sets
  std::uint64_t document = 0;  ///< in its data set
  std::uint32_t first = 0;
  std::uint32_t length = 0;
};

struct TrainingBatch {
  std::vector<TrainingSequence> sequences;
  std::vector<std::uint64_t> ids() const;
  std::vector<std::uint32_t> lengths() const;  ///< tokens
};

/// Draws a run's batches: the same on every rank for the same settings, whatever their number. Each
/// set is shuffled anew every epoch (Sampler). With several sets the next sequence comes from the
/// set whose tokens so far are the fewest for its weight, the first of those in order. With a token
/// budget sequences are taken until the next would exceed it; a batch holds at least one.
class TrainingData {
 public:
  /// Opens the sets. Throws InputError: a set without sequences to train on, none held out although
  /// a share is asked for, a document over the context under the policy `error`, or what
  /// open_dataset() refuses.
  explicit TrainingData(DataSettings settings);
  ~TrainingData();

  TrainingBatch next();

  /// Where it stands, to be saved with a checkpoint, with a fingerprint of the data.
  Json position() const;
  /// Continues from there. Throws InputError when it is of other data or settings; `where` names
  /// its file.
  void seek(const Json& position, const std::string& where);

  /// The held-out sequences set by set in their order, cut by the same context policy, in batches
  /// of at most `tokens_per_batch` tokens (at least one sequence each); ends after
  /// `most_sequences`.
  std::vector<TrainingBatch> validation_batches(std::uint64_t tokens_per_batch,
                                                std::uint64_t most_sequences) const;

  /// A sequence's tokens. Throws InputError naming the sequence if an id is not below the
  /// vocabulary.
  void read(const TrainingSequence& sequence, std::span<std::int32_t> tokens) const;
  /// Tokens at the beginning of a sequence that are no targets. (Nor is the first token ever.)
  std::uint32_t prompt_tokens(const TrainingSequence& sequence) const;

  /// What was left out, one sentence each: empty documents, documents over the context.
  std::vector<std::string> notes() const;

 private:
  struct Set;
  Set& choose();
  std::vector<std::unique_ptr<Set>> sets_;
  DataSettings settings_;
};

}  // namespace hydraulis
