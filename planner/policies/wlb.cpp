#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>

#include "planner/policies/homogeneous.h"
#include "planner/policies/own_groups.h"
#include "planner/policies/policies.h"
#include "planner/policies/static_layout.h"

namespace hydraulis {
namespace {

/// A sequence and the iteration it was drawn for.
struct Document {
  Sequence sequence;
  std::uint64_t drawn = 0;
};

/// Micro-batches of an iteration as they fill up.
class Balancer {
 public:
  Balancer(const PipelineCost& pipeline, std::size_t count)
      : pipeline_(pipeline), batches_(count), tokens_(count, 0), seconds_(count, 0) {}

  /// To the micro-batch with the least work, else to the one with the fewest tokens; false when
  /// neither has room.
  bool place(const Sequence& sequence) {
    const std::size_t lightest = least([this](std::size_t i) { return seconds_[i]; });
    if (fits(lightest, sequence)) {
      add(lightest, sequence);
      return true;
    }
    const std::size_t emptiest = least([this](std::size_t i) { return tokens_[i]; });
    if (!fits(emptiest, sequence)) return false;
    add(emptiest, sequence);
    return true;
  }

  std::vector<MicroBatch> take() {
    std::erase_if(batches_, [](const MicroBatch& batch) { return batch.lengths.empty(); });
    return std::move(batches_);
  }

 private:
  template <typename Key>
  std::size_t least(Key key) const {
    std::size_t best = 0;
    for (std::size_t i = 1; i < batches_.size(); ++i) {
      if (key(i) < key(best)) best = i;
    }
    return best;
  }
  bool fits(std::size_t i, const Sequence& sequence) const {
    return tokens_[i] + pipeline_.padded(sequence.length) <= pipeline_.max_tokens;
  }
  void add(std::size_t i, const Sequence& sequence) {
    add_sequence(batches_[i], sequence, pipeline_);
    tokens_[i] += pipeline_.padded(sequence.length);
    seconds_[i] += pipeline_.sequence_seconds(sequence.length);
  }

  const PipelineCost& pipeline_;
  std::vector<MicroBatch> batches_;
  std::vector<std::int64_t> tokens_;  ///< padding included
  std::vector<double> seconds_;       ///< without the constant of a micro-batch
};

/// As many micro-batches as fixed packing to the context makes, a multiple of the replicas.
std::size_t micro_batches(std::uint64_t tokens, std::int64_t context, std::size_t replicas) {
  const auto packs = static_cast<std::size_t>((tokens + static_cast<std::uint64_t>(context) - 1) /
                                              static_cast<std::uint64_t>(context));
  return std::max<std::size_t>(1, (packs + replicas - 1) / replicas) * replicas;
}

/// All sequences at once, more micro-batches where they do not fit.
std::vector<MicroBatch> pack_all(std::span<const Sequence> sorted, const PipelineCost& pipeline,
                                 std::size_t count, std::size_t replicas) {
  const std::int64_t unit = pipeline.padded(1);  // lengths up to here fit whatever the padding
  expect_at_most(sorted, pipeline.max_tokens / unit * unit, to_string(pipeline.scheme));
  for (;; count += replicas) {
    Balancer balancer(pipeline, count);
    if (std::all_of(sorted.begin(), sorted.end(),
                    [&](const Sequence& sequence) { return balancer.place(sequence); })) {
      return balancer.take();
    }
  }
}

class Wlb : public Policy {
 public:
  explicit Wlb(const PolicySetup& setup)
      : context_(setup.context),
        layout_(best_homogeneous_layout(
            with_rings(setup), [context = setup.context](std::span<const Sequence> sequences,
                                                         const HomogeneousLayout& layout) {
              const auto& pipelines = layout.prepared.pipelines.front();
              std::uint64_t tokens = 0;
              for (const Sequence& sequence : sequences) tokens += sequence.length;
              return deal_round_robin(
                  pack_all(longest_first(sequences), pipelines.front(),
                           micro_batches(tokens, context, pipelines.size()), pipelines.size()),
                  sequences, layout);
            })) {}

  BatchPlan plan(std::span<const Batch> window) override {
    const auto start = std::chrono::steady_clock::now();
    const auto& pipelines = layout_.prepared.pipelines.front();
    const PipelineCost& pipeline = pipelines.front();
    const std::vector<Sequence> drawn = sequences_of(window.front());
    std::uint64_t tokens = 0;
    for (const Sequence& sequence : drawn) tokens += sequence.length;
    const std::size_t count = micro_batches(tokens, context_, pipelines.size());
    std::vector<Document> due = take_due(drawn, count, window.size() > 1);
    std::stable_sort(due.begin(), due.end(), [](const Document& a, const Document& b) {
      return a.sequence.length > b.sequence.length;
    });
    std::vector<MicroBatch> packed;
    std::vector<Sequence> trained;
    if (window.size() > 1) {
      Balancer balancer(pipeline, count);
      for (const Document& document : due) {
        if (balancer.place(document.sequence)) {
          trained.push_back(document.sequence);
          note_delay(document);
        } else {
          remaining_.push_back(document);
        }
      }
      packed = balancer.take();
    } else {
      for (const Document& document : due) {
        trained.push_back(document.sequence);
        note_delay(document);
      }
      packed = pack_all(trained, pipeline, count, pipelines.size());
    }
    ++iteration_;
    BatchPlan plan = deal_round_robin(std::move(packed), trained, layout_);
    plan.set_lower_bound_seconds = plan.lower_bound_seconds;
    plan.planning_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return plan;
  }

  std::size_t lookahead() const override { return 1; }  // to know the end of the run
  bool reorders_data() const override { return true; }
  const CostModel& cost_model() const override { return layout_.model; }
  const std::vector<Strategy>& strategies() const override { return layout_.prepared.strategies; }
  std::string remark() const override {
    std::string text = layout_.remark;
    if (trained_tokens_ > 0) {
      text += fmt::format("; {} of {} sequences delayed, {:.2f} iterations a token on average",
                          delayed_, trained_, delay_ / trained_tokens_);
    }
    return text;
  }

 private:
  /// Levels of the outlier queue, as shares of the context: longer ones wait.
  static constexpr std::array kLevels = {0.5, 0.25};

  /// What is to be packed now: what was left over, the sequences that are no outliers, and of every
  /// level one for each micro-batch once so many wait. Without `wait`, everything.
  std::vector<Document> take_due(const std::vector<Sequence>& drawn, std::size_t count, bool wait) {
    std::vector<Document> due = std::move(remaining_);
    remaining_.clear();
    for (const Sequence& sequence : drawn) {
      const Document document{sequence, iteration_};
      std::size_t level = 0;
      while (level < kLevels.size() &&
             sequence.length <= kLevels[level] * static_cast<double>(context_)) {
        ++level;
      }
      if (level == kLevels.size()) {
        due.push_back(document);
      } else {
        waiting_[level].push_back(document);
      }
    }
    for (auto& queue : waiting_) {
      const std::size_t taken = !wait ? queue.size() : queue.size() >= count ? count : 0;
      due.insert(due.end(), queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(taken));
      queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(taken));
    }
    // An iteration trains something.
    for (auto& queue : waiting_) {
      while (due.empty() && !queue.empty()) {
        due.push_back(queue.front());
        queue.pop_front();
      }
    }
    return due;
  }

  void note_delay(const Document& document) {
    const auto tokens = static_cast<double>(document.sequence.length);
    ++trained_;
    trained_tokens_ += tokens;
    if (document.drawn == iteration_) return;
    ++delayed_;
    delay_ += tokens * static_cast<double>(iteration_ - document.drawn);
  }

  std::int64_t context_;
  HomogeneousLayout layout_;
  std::array<std::deque<Document>, kLevels.size()> waiting_;
  std::vector<Document> remaining_;
  std::uint64_t iteration_ = 0;
  std::uint64_t trained_ = 0;
  std::uint64_t delayed_ = 0;
  double trained_tokens_ = 0;
  double delay_ = 0;  ///< tokens · iterations
};

}  // namespace

std::unique_ptr<Policy> make_wlb(const PolicySetup& setup) { return std::make_unique<Wlb>(setup); }

}  // namespace hydraulis
