#include "runtime/training_data.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/random.h"
#include "runtime/crc32c.h"

namespace hydraulis {
namespace {

constexpr std::uint64_t kMostSequences = 1'000'000;  ///< of a batch
constexpr double kMostWeight = 1e9;
constexpr std::int64_t kMost = std::int64_t{1} << 53;

/// Documents of a data set that serve one purpose, and their lengths for the sampler.
struct Selection {
  std::vector<std::uint32_t> documents;  ///< index in the data set of each
  LengthTrace trace;
};

}  // namespace

struct TrainingData::Set {
  std::uint32_t index = 0;
  double weight = 1;
  std::unique_ptr<Dataset> data;
  Selection training;
  Selection held_out;
  std::uint64_t empty = 0;
  std::uint32_t fingerprint = 0;  ///< changes when a length does
  std::optional<Sampler> sampler;
  SamplerPosition before_offered;  ///< where to continue if `offered` is not taken
  std::optional<TrainingSequence> offered;
  std::uint64_t tokens_drawn = 0;

  /// The next sequence, drawn once and kept until it is taken.
  const TrainingSequence& peek(std::size_t sets) {
    if (!offered) {
      before_offered = sampler->position();
      offered = draw(*sampler, training, sets);
    }
    return *offered;
  }
  SamplerPosition position() const { return offered ? before_offered : sampler->position(); }

  /// The next sequence of a sampler that gives one a batch.
  TrainingSequence draw(Sampler& from, const Selection& selection, std::size_t sets) const {
    TrainingSequence sequence;
    // Where the sampler stands in a document that it cuts; elsewhere sequences begin at 0.
    sequence.first = static_cast<std::uint32_t>(from.position().offset_in_document);
    const Batch batch = from.next();
    sequence.id = batch.ids[0] * sets + index;
    sequence.set = index;
    sequence.document = selection.documents[from.document_of(batch.ids[0])];
    sequence.length = batch.lengths[0];
    return sequence;
  }
};

namespace {

/// Sorts the documents of a data set by purpose; empty ones have none.
void select(const Dataset& data, double held_out_share, const SamplerOptions& sampling,
            Selection& training, Selection& held_out, std::uint64_t& empty) {
  const auto& lengths = data.lengths();
  if (lengths.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw InputError("{}: {} documents, at most {} are supported", data.name(), lengths.size(),
                     std::numeric_limits<std::uint32_t>::max());
  }
  training.trace.source = data.name();
  held_out.trace.source = data.name() + " (held out)";
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] == 0) {
      ++empty;
      continue;
    }
    if (sampling.over_context == OverContext::error && sampling.context > 0 &&
        lengths[i] > sampling.context) {
      throw InputError(
          "{}: sequence {} has {} tokens, the context is {}; choose what happens to longer "
          "sequences: truncate, split or drop",
          data.name(), i, lengths[i], sampling.context);
    }
    Selection& selection = is_held_out(i, held_out_share) ? held_out : training;
    selection.documents.push_back(static_cast<std::uint32_t>(i));
    selection.trace.lengths.push_back(lengths[i]);
  }
  if (training.documents.empty()) {
    throw InputError("{}: no sequence to train on ({} documents, {} empty, {} held out)",
                     data.name(), lengths.size(), empty, held_out.documents.size());
  }
  if (held_out_share > 0 && held_out.documents.empty()) {
    throw InputError("{}: a share of {} held out for validation leaves none of {} documents there",
                     data.name(), held_out_share, lengths.size());
  }
}

std::uint32_t fingerprint(const Dataset& data) {
  return crc32c(std::as_bytes(std::span(data.lengths())));
}

/// The first set shuffles with the run's seed itself, so that a run on one set draws what the
/// simulator draws from its lengths with that seed.
std::uint64_t seed_of_set(std::uint64_t seed, std::uint32_t set) {
  return set == 0 ? seed : Random(seed, set).next();
}

DatasetSource parse_source(JsonFields& fields, const std::filesystem::path& folder) {
  const auto beside = [&](const std::string& path) { return (folder / path).string(); };
  DatasetSource source;
  source.path = beside(fields.text("path"));
  source.tokenizer = fields.text_or("tokenizer", "");
  if (source.tokenizer.starts_with("bpe:")) {
    const std::string files = source.tokenizer.substr(4);
    const std::size_t comma = files.find(',');
    source.tokenizer = "bpe:" + beside(files.substr(0, comma));
    if (comma != std::string::npos) source.tokenizer += "," + beside(files.substr(comma + 1));
  }
  source.text_field = fields.text_or("text_field", "text");
  source.prompt_field = fields.text_or("prompt_field", "");
  source.response_field = fields.text_or("response_field", "");
  if (fields.has("end_token")) {
    source.end_token = static_cast<std::int32_t>(
        fields.integer("end_token", 0, std::numeric_limits<std::int32_t>::max()));
  }
  source.unit = parse_document_unit(fields.text_or("unit", "document"));
  return source;
}

}  // namespace

DataSettings parse_data_settings(const Json& json, const std::string& file,
                                 const std::string& field) {
  JsonFields fields(json, file, field);
  DataSettings settings;
  const Json& sets = fields.at("sets");
  if (!sets.is_array() || sets.empty()) {
    throw InputError("{} is not a list of one or more data sets", fields.name("sets"));
  }
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  for (std::size_t i = 0; i < sets.size(); ++i) {
    JsonFields set(sets[i], file, fmt::format("{}.sets[{}]", field, i));
    WeightedSource weighted;
    weighted.source = parse_source(set, folder);
    if (set.has("weight")) weighted.weight = set.positive("weight");
    if (weighted.weight > kMostWeight) {
      throw InputError("{} is {}, expected at most {}", set.name("weight"), weighted.weight,
                       kMostWeight);
    }
    set.finish();
    settings.sets.push_back(std::move(weighted));
  }
  const auto count = [&](const char* name) {
    return static_cast<std::uint64_t>(fields.integer_or(name, 0, 0, kMost));
  };
  settings.sampling.tokens_per_batch = count("tokens_per_batch");
  settings.sampling.sequences_per_batch = count("sequences_per_batch");
  settings.sampling.context = count("context");
  settings.sampling.over_context = parse_over_context(fields.text_or("over_context", "error"));
  settings.sampling.shuffle = fields.boolean_or("shuffle", true);
  settings.sampling.seed = count("seed");
  settings.held_out = fields.number_or("held_out", 0);
  if (settings.held_out < 0 || settings.held_out >= 1) {
    throw InputError("{} is {}, expected 0 or more and less than 1", fields.name("held_out"),
                     settings.held_out);
  }
  fields.finish();
  return settings;
}

bool is_held_out(std::uint64_t document, double share) {
  std::uint64_t z = (document + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1.0p-53 < share;
}

std::vector<std::uint64_t> TrainingBatch::ids() const {
  std::vector<std::uint64_t> result;
  for (const TrainingSequence& sequence : sequences) result.push_back(sequence.id);
  return result;
}

std::vector<std::uint32_t> TrainingBatch::lengths() const {
  std::vector<std::uint32_t> result;
  for (const TrainingSequence& sequence : sequences) result.push_back(sequence.length);
  return result;
}

TrainingData::TrainingData(DataSettings settings) : settings_(std::move(settings)) {
  const SamplerOptions& sampling = settings_.sampling;
  if ((sampling.tokens_per_batch > 0) == (sampling.sequences_per_batch > 0)) {
    throw InputError(
        "data: tokens_per_batch is {} and sequences_per_batch is {}, expected exactly one of them "
        "to be set",
        sampling.tokens_per_batch, sampling.sequences_per_batch);
  }
  if (sampling.exact_tokens) throw std::logic_error("training data is never cut to fit a budget");
  for (const WeightedSource& weighted : settings_.sets) {
    auto set = std::make_unique<Set>();
    set->index = static_cast<std::uint32_t>(sets_.size());
    set->weight = weighted.weight;
    set->data = open_dataset(weighted.source);
    select(*set->data, settings_.held_out, sampling, set->training, set->held_out, set->empty);
    set->fingerprint = fingerprint(*set->data);
    SamplerOptions one = sampling;
    one.tokens_per_batch = 0;
    one.sequences_per_batch = 1;
    one.seed = seed_of_set(sampling.seed, set->index);
    set->sampler.emplace(set->training.trace, one);
    sets_.push_back(std::move(set));
  }
}

TrainingData::~TrainingData() = default;

TrainingData::Set& TrainingData::choose() {
  const auto served = [](const std::unique_ptr<Set>& set) {
    return static_cast<double>(set->tokens_drawn) / set->weight;
  };
  return **std::ranges::min_element(sets_, {}, served);
}

TrainingBatch TrainingData::next() {
  const std::uint64_t budget = settings_.sampling.tokens_per_batch;
  const std::uint64_t most = budget > 0 ? kMostSequences : settings_.sampling.sequences_per_batch;
  TrainingBatch batch;
  std::uint64_t tokens = 0;
  while (batch.sequences.size() < most && (budget == 0 || tokens < budget)) {
    Set& set = choose();
    const TrainingSequence& offered = set.peek(sets_.size());
    if (budget > 0 && !batch.sequences.empty() && offered.length > budget - tokens) break;
    tokens += offered.length;
    set.tokens_drawn += offered.length;
    batch.sequences.push_back(offered);
    set.offered.reset();
  }
  return batch;
}

Json TrainingData::position() const {
  Json sets = Json::array();
  for (const auto& set : sets_) {
    sets.push_back({{"documents", set->data->lengths().size()},
                    {"lengths_crc32c", set->fingerprint},
                    {"tokens_drawn", set->tokens_drawn},
                    {"sampler", to_json(set->position())}});
  }
  return {{"seed", settings_.sampling.seed}, {"held_out", settings_.held_out}, {"sets", sets}};
}

void TrainingData::seek(const Json& position, const std::string& where) {
  JsonFields fields(position, where, "data");
  const auto differs = [&](const std::string& field, const auto& saved, const auto& now) {
    throw InputError("{} is {} in the checkpoint, but {} in this run: it would see other sequences",
                     field, saved, now);
  };
  const auto seed = static_cast<std::uint64_t>(fields.integer("seed", 0, INT64_MAX));
  if (seed != settings_.sampling.seed) differs(fields.name("seed"), seed, settings_.sampling.seed);
  const double held_out = fields.number("held_out");
  if (held_out != settings_.held_out) {
    differs(fields.name("held_out"), held_out, settings_.held_out);
  }
  const Json& sets = fields.at("sets");
  if (!sets.is_array() || sets.size() != sets_.size()) {
    differs(fields.name("sets"), sets.size(), sets_.size());
  }
  fields.finish();
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    Set& set = *sets_[i];
    JsonFields saved(sets[i], where, fmt::format("data.sets[{}]", i));
    const auto documents = static_cast<std::uint64_t>(saved.integer("documents", 0, INT64_MAX));
    if (documents != set.data->lengths().size()) {
      differs(saved.name("documents"), documents, set.data->lengths().size());
    }
    const std::int64_t crc = saved.integer("lengths_crc32c", 0, UINT32_MAX);
    if (crc != set.fingerprint) {
      differs(saved.name("lengths_crc32c"), crc, set.fingerprint);
    }
    set.tokens_drawn = static_cast<std::uint64_t>(saved.integer("tokens_drawn", 0, INT64_MAX));
    set.offered.reset();
    set.sampler->seek(sampler_position_from_json(saved.at("sampler"), where));
    saved.finish();
  }
}

std::vector<TrainingBatch> TrainingData::validation_batches(std::uint64_t tokens_per_batch,
                                                            std::uint64_t most_sequences) const {
  std::vector<TrainingBatch> batches;
  std::uint64_t tokens = 0;
  std::uint64_t taken = 0;
  for (const auto& set : sets_) {
    if (set->held_out.documents.empty()) continue;
    SamplerOptions one = settings_.sampling;
    one.tokens_per_batch = 0;
    one.sequences_per_batch = 1;
    one.shuffle = false;
    Sampler sampler(set->held_out.trace, one);
    for (; taken < most_sequences; ++taken) {
      const TrainingSequence next = set->draw(sampler, set->held_out, sets_.size());
      if (next.id / sets_.size() >= sampler.ids_per_epoch()) break;  // the second time round
      if (batches.empty() || tokens + next.length > tokens_per_batch) {
        batches.emplace_back();
        tokens = 0;
      }
      tokens += next.length;
      batches.back().sequences.push_back(next);
    }
  }
  return batches;
}

void TrainingData::read(const TrainingSequence& sequence, std::span<std::int32_t> tokens) const {
  if (tokens.size() != sequence.length) throw std::logic_error("a sequence of another length");
  const Dataset& data = *sets_.at(sequence.set)->data;
  data.read(sequence.document, sequence.first, tokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= settings_.vocabulary) {
      throw InputError("{}: sequence {}: token {} is {}, expected 0 to {} by the vocabulary",
                       data.name(), sequence.document, sequence.first + i, tokens[i],
                       settings_.vocabulary - 1);
    }
  }
}

std::uint32_t TrainingData::prompt_tokens(const TrainingSequence& sequence) const {
  const std::uint32_t prompt = sets_.at(sequence.set)->data->prompt_tokens(sequence.document);
  if (prompt <= sequence.first) return 0;
  return std::min(prompt - sequence.first, sequence.length);
}

std::vector<std::string> TrainingData::notes() const {
  std::vector<std::string> notes;
  for (const auto& set : sets_) {
    if (set->empty > 0) {
      notes.push_back(
          fmt::format("{}: {} empty documents left out", set->data->name(), set->empty));
    }
    const OverContextCounts counts = set->position().counts;
    if (counts.sequences > 0) {
      notes.push_back(fmt::format("{}: {} documents over the context so far, {} tokens removed",
                                  set->data->name(), counts.sequences, counts.tokens_removed));
    }
  }
  return notes;
}

}  // namespace hydraulis
