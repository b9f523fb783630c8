#include "traces/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"

namespace hydraulis {
namespace {

__extension__ typedef unsigned __int128 Wide;  // exact sum of squares of any trace

struct QuantileName {
  const char* name;
  std::uint64_t per_mille;
};
constexpr QuantileName kQuantiles[] = {{"p1", 10},   {"p10", 100}, {"p25", 250},
                                       {"p50", 500}, {"p75", 750}, {"p90", 900},
                                       {"p95", 950}, {"p99", 990}, {"p99_9", 999}};

/// Exponent of the smallest power of two that is not below the length.
std::size_t octave(std::uint32_t length) {
  return static_cast<std::size_t>(std::bit_width(length - 1));
}

}  // namespace

TraceStatistics compute_statistics(const LengthTrace& trace) {
  if (trace.lengths.empty()) throw InputError("{}: the trace holds no sequences", trace.source);
  TraceStatistics result;
  result.sequences = trace.lengths.size();
  result.empty_documents = trace.empty_documents;

  std::array<TraceStatistics::Bucket, 33> octaves;
  for (std::size_t i = 0; i < octaves.size(); ++i) octaves[i].upto = std::uint64_t{1} << i;
  Wide squares = 0;
  std::vector<std::uint32_t> sorted = trace.lengths;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.front() == 0) throw InputError("{}: a sequence has length 0", trace.source);
  for (const std::uint32_t length : sorted) {
    auto& bucket = octaves[octave(length)];
    ++bucket.sequences;
    bucket.tokens += length;
    result.tokens += length;
    squares += Wide{length} * length;
  }
  result.sum_squares = static_cast<double>(squares);
  const auto documents = static_cast<double>(result.sequences);
  result.mean = static_cast<double>(result.tokens) / documents;
  result.mean_with_empty = static_cast<double>(result.tokens) /
                           (documents + static_cast<double>(result.empty_documents));
  result.min = sorted.front();
  result.max = sorted.back();
  for (const auto& q : kQuantiles) {
    const std::uint64_t rank = (result.sequences * q.per_mille + 999) / 1000;
    result.quantiles.emplace_back(q.name, sorted[std::max<std::uint64_t>(rank, 1) - 1]);
  }

  result.octaves.assign(octaves.begin() + static_cast<std::ptrdiff_t>(octave(result.min)),
                        octaves.begin() + static_cast<std::ptrdiff_t>(octave(result.max)) + 1);
  constexpr std::size_t kFirst = 10;
  constexpr std::size_t kLast = 20;
  TraceStatistics::Bucket low;
  for (std::size_t i = 0; i < octaves.size(); ++i) {
    if (i > std::max(kLast, octave(result.max))) break;
    low.upto = octaves[i].upto;
    low.sequences += octaves[i].sequences;
    low.tokens += octaves[i].tokens;
    if (i < kFirst) continue;  // everything up to 1,024 tokens is one bucket
    result.buckets.push_back(low);
    low = {};
  }
  for (auto* group : {&result.octaves, &result.buckets}) {
    for (auto& bucket : *group) {
      bucket.sequence_share = static_cast<double>(bucket.sequences) / documents;
      bucket.token_share = static_cast<double>(bucket.tokens) / static_cast<double>(result.tokens);
    }
  }
  return result;
}

LengthTrace apply_over_context(const LengthTrace& trace, std::uint64_t context, OverContext policy,
                               OverContextCounts& counts) {
  SamplerOptions options;
  options.sequences_per_batch = 1;
  options.context = context;
  options.over_context = policy;
  options.shuffle = false;
  const Sampler check(trace, options);  // refuses what the policy cannot serve
  counts = {};
  LengthTrace result = trace;
  result.lengths.clear();
  for (const std::uint64_t length : trace.lengths) {
    std::uint64_t left = length;
    if (context > 0 && length > context) {
      ++counts.sequences;
      for (; policy == OverContext::split && left > context; left -= context) {
        result.lengths.push_back(static_cast<std::uint32_t>(context));
      }
      if (policy == OverContext::truncate) left = context;
      if (policy == OverContext::drop) left = 0;
      if (policy != OverContext::split) counts.tokens_removed += length - left;
    }
    if (left > 0) result.lengths.push_back(static_cast<std::uint32_t>(left));
  }
  return result;
}

std::uint32_t quantile(const TraceStatistics& statistics, const std::string& name) {
  for (const auto& [known, value] : statistics.quantiles) {
    if (known == name) return value;
  }
  throw InputError("no quantile named '{}'", name);
}

Json to_json(const TraceStatistics& statistics) {
  Json json;
  json["sequences"] = statistics.sequences;
  json["tokens"] = statistics.tokens;
  json["empty_documents"] = statistics.empty_documents;
  json["mean"] = statistics.mean;
  json["mean_with_empty"] = statistics.mean_with_empty;
  json["min"] = statistics.min;
  json["max"] = statistics.max;
  json["sum_squares"] = statistics.sum_squares;
  json["quantiles"] = Json::object();
  for (const auto& [name, value] : statistics.quantiles) json["quantiles"][name] = value;
  json["buckets"] = Json::array();
  for (const auto& bucket : statistics.buckets) {
    json["buckets"].push_back(
        {{"upto", bucket.upto}, {"sequences", bucket.sequences}, {"tokens", bucket.tokens}});
  }
  return json;
}

std::string draw_histogram(const TraceStatistics& statistics, int width) {
  double largest = 0;
  for (const auto& octave : statistics.octaves) {
    largest = std::max({largest, octave.sequence_share, octave.token_share});
  }
  std::string text = fmt::format("{:>12}  {:<{}}  {}\n", "up to", "sequences", width + 8, "tokens");
  for (const auto& octave : statistics.octaves) {
    const auto bar = [&](double share) {
      // Anything that is there gets at least one mark.
      const int marks =
          share == 0 ? 0 : std::max(1, static_cast<int>(std::lround(share / largest * width)));
      return fmt::format("{:5.1f} % {:<{}}", 100 * share,
                         std::string(static_cast<std::size_t>(marks), '#'), width);
    };
    std::string line = fmt::format("{:>12}  {}  {}", octave.upto, bar(octave.sequence_share),
                                   bar(octave.token_share));
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace hydraulis
