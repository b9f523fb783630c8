#include "traces/sampler.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace hydraulis {

OverContext parse_over_context(const std::string& text) {
  if (text == "error") return OverContext::error;
  if (text == "truncate") return OverContext::truncate;
  if (text == "split") return OverContext::split;
  if (text == "drop") return OverContext::drop;
  throw InputError("over-context policy '{}' is not known, expected error, truncate, split or drop",
                   text);
}

std::uint64_t Batch::tokens() const {
  return std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0});
}

Json to_json(const SamplerPosition& position) {
  return {{"epoch", position.epoch},
          {"next_in_epoch", position.next_in_epoch},
          {"offset_in_document", position.offset_in_document},
          {"over_context_sequences", position.counts.sequences},
          {"over_context_tokens_removed", position.counts.tokens_removed},
          {"tokens_cut_to_fit", position.tokens_cut_to_fit}};
}

SamplerPosition sampler_position_from_json(const Json& json, const std::string& where) {
  JsonFields fields(json, where, "");
  const auto count = [&](const char* field) {
    return static_cast<std::uint64_t>(
        fields.integer(field, 0, std::numeric_limits<std::int64_t>::max()));
  };
  SamplerPosition position;
  position.epoch = count("epoch");
  position.next_in_epoch = count("next_in_epoch");
  position.offset_in_document = count("offset_in_document");
  position.counts.sequences = count("over_context_sequences");
  position.counts.tokens_removed = count("over_context_tokens_removed");
  position.tokens_cut_to_fit = count("tokens_cut_to_fit");
  fields.finish();
  return position;
}

Sampler::Sampler(const LengthTrace& trace, SamplerOptions options)
    : trace_(trace), options_(options) {
  if ((options_.tokens_per_batch > 0) == (options_.sequences_per_batch > 0)) {
    throw InputError(
        "sampler: tokens per batch is {} and sequences per batch is {}, expected exactly one of "
        "them to be set",
        options_.tokens_per_batch, options_.sequences_per_batch);
  }
  if (options_.sequences_per_batch > kMostSequencesPerBatch) {
    throw InputError("sampler: {} sequences per batch, expected at most {}",
                     options_.sequences_per_batch, kMostSequencesPerBatch);
  }
  if (options_.exact_tokens && options_.tokens_per_batch == 0) {
    throw InputError("sampler: exact tokens needs a token budget per batch");
  }
  check_lengths();
  if (options_.over_context == OverContext::split && options_.context > 0) {
    first_piece_.reserve(trace_.lengths.size() + 1);
    first_piece_.push_back(0);
    for (const std::uint64_t length : trace_.lengths) {
      first_piece_.push_back(first_piece_.back() + (length - 1) / options_.context + 1);
    }
  }
  start_epoch(0);
}

void Sampler::check_lengths() const {
  if (trace_.lengths.empty()) {
    throw InputError("{}: the trace holds no sequences", trace_.source);
  }
  if (trace_.lengths.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw InputError("{}: {} sequences, at most {} are supported", trace_.source,
                     trace_.lengths.size(), std::numeric_limits<std::uint32_t>::max());
  }
  bool any_fits = options_.context == 0;
  for (std::size_t i = 0; i < trace_.lengths.size(); ++i) {
    const std::uint32_t length = trace_.lengths[i];
    if (length == 0) throw InputError("{}: sequence {} has length 0", trace_.source, i);
    const bool fits = options_.context == 0 || length <= options_.context;
    any_fits = any_fits || fits;
    if (!fits && options_.over_context == OverContext::error) {
      throw InputError(
          "{}: sequence {} has {} tokens, the context is {}; choose what happens to longer "
          "sequences: truncate, split or drop",
          trace_.source, i, length, options_.context);
    }
  }
  if (!any_fits && options_.over_context == OverContext::drop) {
    throw InputError("{}: every sequence is over the context of {} tokens and would be dropped",
                     trace_.source, options_.context);
  }
}

void Sampler::start_epoch(std::uint64_t epoch) {
  position_.epoch = epoch;
  position_.next_in_epoch = 0;
  position_.offset_in_document = 0;
  order_.resize(trace_.lengths.size());
  std::iota(order_.begin(), order_.end(), 0u);
  if (!options_.shuffle) return;
  Random random(options_.seed, epoch);
  for (std::size_t i = order_.size() - 1; i > 0; --i) {
    std::swap(order_[i], order_[random.below(i + 1)]);
  }
}

bool Sampler::over_context() const {
  return options_.context > 0 && trace_.lengths[document()] > options_.context;
}

/// Moves to the next document that the policy keeps, over the end of the epoch if need be.
void Sampler::skip_dropped() {
  for (;;) {
    if (position_.next_in_epoch == order_.size()) start_epoch(position_.epoch + 1);
    if (options_.over_context != OverContext::drop || !over_context()) return;
    ++position_.counts.sequences;
    position_.counts.tokens_removed += trace_.lengths[document()];
    ++position_.next_in_epoch;
  }
}

/// Tokens the current document offers next.
std::uint32_t Sampler::peek() const {
  const std::uint64_t left = trace_.lengths[document()] - position_.offset_in_document;
  if (options_.context == 0) return static_cast<std::uint32_t>(left);
  return static_cast<std::uint32_t>(std::min(left, options_.context));
}

/// Puts the next `tokens` of the current document (all that peek() offers, or fewer to fit a
/// budget exactly) into the batch and moves on.
void Sampler::take(std::uint32_t tokens, Batch& batch) {
  const std::uint32_t index = document();
  const std::uint64_t length = trace_.lengths[index];
  const std::uint32_t offered = peek();
  std::uint64_t id = position_.epoch * ids_per_epoch();
  if (first_piece_.empty()) {
    id += index;
  } else {
    id += first_piece_[index] + position_.offset_in_document / options_.context;
  }
  batch.ids.push_back(id);
  batch.lengths.push_back(tokens);
  position_.tokens_cut_to_fit += offered - tokens;
  if (over_context() && position_.offset_in_document == 0) ++position_.counts.sequences;
  if (!first_piece_.empty()) {
    position_.offset_in_document += offered;
    if (position_.offset_in_document < length) return;
  } else {
    position_.counts.tokens_removed += length - offered;
  }
  position_.offset_in_document = 0;
  ++position_.next_in_epoch;
}

Batch Sampler::next() {
  Batch batch;
  const std::uint64_t budget = options_.tokens_per_batch;
  std::uint64_t tokens = 0;
  while (budget > 0 ? tokens < budget : batch.ids.size() < options_.sequences_per_batch) {
    skip_dropped();
    std::uint32_t offered = peek();
    if (budget > 0 && offered > budget - tokens) {
      if (options_.exact_tokens) {
        offered = static_cast<std::uint32_t>(budget - tokens);
      } else if (!batch.ids.empty()) {
        break;
      }
    }
    if (batch.ids.size() == kMostSequencesPerBatch) {
      throw InputError(
          "{}: a batch of {} tokens takes more than {} sequences; ask for fewer tokens",
          trace_.source, budget, kMostSequencesPerBatch);
    }
    take(offered, batch);
    tokens += offered;
  }
  return batch;
}

void Sampler::seek(const SamplerPosition& position) {
  const std::uint64_t documents = trace_.lengths.size();
  if (position.next_in_epoch > documents) {
    throw InputError("sampler position: next_in_epoch is {}, but the trace has {} sequences",
                     position.next_in_epoch, documents);
  }
  start_epoch(position.epoch);
  const std::uint64_t offset = position.offset_in_document;
  if (offset > 0 && (first_piece_.empty() || position.next_in_epoch == documents ||
                     offset % options_.context != 0 ||
                     offset >= trace_.lengths[order_[position.next_in_epoch]])) {
    throw InputError(
        "sampler position: offset_in_document is {}, which is no cut of that document with this "
        "trace, context and policy",
        offset);
  }
  position_ = position;
}

std::uint64_t Sampler::ids_per_epoch() const {
  return first_piece_.empty() ? trace_.lengths.size() : first_piece_.back();
}

std::uint64_t Sampler::document_of(std::uint64_t id) const {
  const std::uint64_t in_epoch = id % ids_per_epoch();
  if (first_piece_.empty()) return in_epoch;
  const auto after = std::upper_bound(first_piece_.begin(), first_piece_.end(), in_epoch);
  return static_cast<std::uint64_t>(after - first_piece_.begin()) - 1;
}

}  // namespace hydraulis
