#include "planner/one_batch.h"

#include "base/error.h"
#include "traces/length_trace.h"
#include "traces/statistics.h"

namespace hydraulis {

OneBatch load_one_batch(const std::filesystem::path& path, std::uint64_t context,
                        OverContext policy, const std::string& format) {
  OneBatch result;
  const LengthTrace trace = load_trace(path, format);
  result.empty = trace.empty_documents;
  const LengthTrace kept = apply_over_context(trace, context, policy, result.counts);
  if (policy == OverContext::drop) result.dropped = result.counts.sequences;
  for (std::size_t i = 0; i < kept.lengths.size(); ++i) {
    result.sequences.push_back({i, kept.lengths[i]});
  }
  if (result.sequences.empty()) {
    throw InputError("{}: has no sequence with tokens, expected at least one", path.string());
  }
  return result;
}

}  // namespace hydraulis
