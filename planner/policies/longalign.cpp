#include <algorithm>

#include "costmodel/derived_schemes.h"
#include "planner/policies/policies.h"
#include "planner/policies/sharded_layout.h"

namespace hydraulis {
namespace {

/// Batches sorted together.
constexpr std::size_t kWindow = 16;

/// One sequence a group and step, in the order of the sequences.
std::vector<std::vector<MicroBatch>> one_by_one(std::span<const Sequence> sequences,
                                                const ShardedLayout& layout) {
  std::vector<std::vector<MicroBatch>> groups(static_cast<std::size_t>(layout.groups));
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    add_sequence(groups[i % groups.size()].emplace_back(), sequences[i], layout.times.pipeline);
  }
  return groups;
}

class LongAlign : public OwnGroups {
 public:
  explicit LongAlign(const PolicySetup& setup)
      : OwnGroups(
            sharded_model(setup.model, context_degrees(setup.model, ContextExchange::all_to_all),
                          ContextExchange::all_to_all),
            setup.assignment.max_tokens),
        layout_(best_sharded_layout(
            setup, model_,
            [](std::span<const Sequence> sequences, const ShardedLayout& layout) {
              return one_by_one(longest_first(sequences), layout);
            },
            remark_)) {
    remark_ += "; batches sorted by length within windows of 16";
  }

  std::size_t lookahead() const override { return kWindow - 1; }
  bool reorders_data() const override { return true; }

 protected:
  BatchPlan group(std::span<const Batch> window) override {
    if (due_.empty()) sort(window);
    const std::vector<Sequence> sequences = std::move(due_.back());
    due_.pop_back();
    BatchPlan plan;
    for (auto& micro_batches : one_by_one(sequences, layout_)) {
      plan.pipelines.push_back({layout_.times.pipeline.scheme, std::move(micro_batches)});
    }
    return plan;
  }

 private:
  /// All sequences of the window by length, cut into as many batches of about equal tokens.
  void sort(std::span<const Batch> window) {
    std::vector<Sequence> pool;
    std::uint64_t left = 0;
    for (const Batch& batch : window) {
      for (const Sequence& sequence : sequences_of(batch)) {
        pool.push_back(sequence);
        left += sequence.length;
      }
    }
    pool = longest_first(pool);
    std::size_t next = 0;
    for (std::size_t batches = window.size(); batches > 0; --batches) {
      std::vector<Sequence>& batch = due_.emplace_back();
      std::uint64_t taken = 0;
      // No batch stays empty while sequences are left for all.
      while (next < pool.size() && (batches == 1 || batch.empty() ||
                                    (taken * batches < left && pool.size() - next >= batches))) {
        taken += pool[next].length;
        batch.push_back(pool[next++]);
      }
      left -= taken;
    }
  }

  ShardedLayout layout_;
  std::vector<std::vector<Sequence>> due_;  ///< of this window, the next at the back
};

}  // namespace

std::unique_ptr<Policy> make_longalign(const PolicySetup& setup) {
  return std::make_unique<LongAlign>(setup);
}

}  // namespace hydraulis
