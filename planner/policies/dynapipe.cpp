#include <algorithm>
#include <limits>

#include "planner/bounds.h"
#include "planner/policies/own_groups.h"
#include "planner/policies/policies.h"
#include "planner/policies/static_layout.h"
#include "planner/schedule.h"

namespace hydraulis {
namespace {

constexpr int kLimits = 12;     ///< values of the longest micro-batch tried
constexpr int kOrderWork = 60;  ///< schedule evaluations per pipeline

/// Splits sequences, sorted by length, into runs: every run is a micro-batch padded to its longest.
class Splitter {
 public:
  Splitter(std::span<const Sequence> sorted, const PipelineCost& pipeline)
      : sorted_(sorted), pipeline_(pipeline), squares_(1, 0) {
    for (const Sequence& sequence : sorted) {
      const double s = sequence.length;
      squares_.push_back(squares_.back() + s * s);
    }
  }

  double seconds(std::size_t first, std::size_t last) const {
    const auto rows = static_cast<double>(last - first);
    const auto row = static_cast<double>(pipeline_.padded(sorted_[first].length));
    return pipeline_.slowest.of(squares_[last] - squares_[first], rows * row);
  }

  /// The fastest split in which no run takes longer than `limit`; `sum`: seconds of its runs.
  /// Returns the ends of the runs, nothing when some sequence alone takes longer.
  std::vector<std::size_t> split(double limit, double& sum) const {
    const std::size_t count = sorted_.size();
    std::vector<double> best(count + 1, std::numeric_limits<double>::infinity());
    std::vector<std::size_t> next(count + 1, count);
    best[count] = 0;
    for (std::size_t first = count; first-- > 0;) {
      const std::int64_t row = pipeline_.padded(sorted_[first].length);
      for (std::size_t last = first + 1; last <= count; ++last) {
        if (static_cast<std::int64_t>(last - first) * row > pipeline_.max_tokens) break;
        const double run = seconds(first, last);
        if (run > limit) break;
        if (run + best[last] < best[first]) {
          best[first] = run + best[last];
          next[first] = last;
        }
      }
    }
    sum = best[0];
    std::vector<std::size_t> ends;
    if (sum == std::numeric_limits<double>::infinity()) return ends;
    for (std::size_t at = 0; at < count; at = next[at]) ends.push_back(next[at]);
    return ends;
  }

 private:
  std::span<const Sequence> sorted_;
  const PipelineCost& pipeline_;
  std::vector<double> squares_;  ///< prefix sums
};

/// Ends of the micro-batches that minimise (pp − 1)·longest + sum / replicas.
std::vector<std::size_t> best_split(const Splitter& splitter, std::size_t count, int stages,
                                    std::size_t replicas) {
  // The longest sequence's own micro-batch is the least limit; from there up.
  double least = 0;
  for (std::size_t i = 0; i < count; ++i) least = std::max(least, splitter.seconds(i, i + 1));
  std::vector<std::size_t> best;
  double best_seconds = std::numeric_limits<double>::infinity();
  double limit = least;
  for (int i = 0; i < kLimits; ++i, limit *= 1.3) {
    double sum = 0;
    auto ends = splitter.split(limit, sum);
    if (ends.empty()) continue;
    double longest = 0;
    std::size_t first = 0;
    for (const std::size_t last : ends) {
      longest = std::max(longest, splitter.seconds(first, last));
      first = last;
    }
    // No replica finishes before its share, nor before the longest micro-batch has passed.
    const double seconds =
        (stages - 1) * longest + std::max(longest, sum / static_cast<double>(replicas));
    if (seconds < best_seconds) {
      best_seconds = seconds;
      best = std::move(ends);
    }
  }
  return best;
}

BatchPlan plan_batch(std::span<const Sequence> sequences, const HomogeneousLayout& layout) {
  const auto& pipelines = layout.prepared.pipelines.front();
  const PipelineCost& pipeline = pipelines.front();
  const std::vector<Sequence> sorted = longest_first(sequences);
  expect_at_most(sorted, pipeline.max_tokens, to_string(pipeline.scheme));
  const Splitter splitter(sorted, pipeline);
  BatchPlan plan;
  plan.pipelines.resize(pipelines.size());
  std::vector<double> loads(pipelines.size(), 0);
  std::size_t first = 0;
  struct Run {
    MicroBatch micro_batch;
    double seconds;
  };
  std::vector<Run> runs;
  for (const std::size_t last :
       best_split(splitter, sorted.size(), pipeline.scheme.pp, pipelines.size())) {
    Run& run = runs.emplace_back(Run{{}, splitter.seconds(first, last)});
    const auto row = static_cast<std::uint64_t>(pipeline.padded(sorted[first].length));
    for (std::size_t i = first; i < last; ++i) add_sequence(run.micro_batch, sorted[i], pipeline);
    run.micro_batch.padding = row * (last - first) - run.micro_batch.tokens();
    first = last;
  }
  std::stable_sort(runs.begin(), runs.end(),
                   [](const Run& a, const Run& b) { return a.seconds > b.seconds; });
  for (Run& run : runs) {
    const auto to = std::min_element(loads.begin(), loads.end()) - loads.begin();
    loads[to] += run.seconds;
    plan.pipelines[to].micro_batches.push_back(std::move(run.micro_batch));
  }
  for (std::size_t k = 0; k < pipelines.size(); ++k) {
    PipelinePlan& one = plan.pipelines[k];
    one.scheme = pipelines[k].scheme;
    std::vector<double> seconds;
    for (const MicroBatch& batch : one.micro_batches) {
      seconds.push_back(pipeline.slowest.of(batch.sum_squares(),
                                            static_cast<double>(batch.tokens() + batch.padding)));
    }
    if (one.scheme.pp > 1 && !seconds.empty()) {
      double best = 0;
      std::vector<MicroBatch> ordered;
      for (const int i : order_micro_batches(seconds, one.scheme.pp, kOrderWork, &best)) {
        ordered.push_back(std::move(one.micro_batches[static_cast<std::size_t>(i)]));
      }
      one.micro_batches = std::move(ordered);
    }
    one.time_seconds = pipeline_makespan(pipelines[k], one.micro_batches);
    plan.makespan_seconds = std::max(plan.makespan_seconds, one.time_seconds);
  }
  plan.lower_bound_seconds = makespan_lower_bound(pipelines, sequences, BoundEffort::quick);
  return plan;
}

}  // namespace

std::unique_ptr<Policy> make_dynapipe(const PolicySetup& setup) {
  return std::make_unique<StaticLayout>(setup, plan_batch);
}

}  // namespace hydraulis
