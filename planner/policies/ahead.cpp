#include <fmt/format.h>

#include <deque>

#include "planner/policies/policies.h"
#include "planner/window_split.h"

namespace hydraulis {
namespace {

/// Batches whose sequences are dealt anew together.
constexpr std::size_t kWindow = 8;

class Ahead : public Policy {
 public:
  explicit Ahead(const PolicySetup& setup)
      : model_(setup.model), prepared_(prepare(setup.set, setup.model, setup.assignment)) {}

  std::size_t lookahead() const override { return kWindow - 1; }
  bool reorders_data() const override { return true; }

  BatchPlan plan(std::span<const Batch> window) override {
    if (due_.empty()) {
      std::vector<std::vector<Sequence>> batches;
      for (const Batch& batch : window) batches.push_back(sequences_of(batch));
      for (auto& batch : deal_anew(batches, prepared_)) due_.push_back(std::move(batch));
    }
    const std::vector<Sequence> sequences = std::move(due_.front());
    due_.pop_front();
    return assign(sequences, prepared_);
  }
  const CostModel& cost_model() const override { return model_; }
  const std::vector<Strategy>& strategies() const override { return prepared_.strategies; }
  std::string remark() const override {
    return fmt::format(
        "{} strategies in the set; sequences dealt anew within windows of {} batches",
        prepared_.strategies.size(), kWindow);
  }

 private:
  CostModel model_;
  PreparedStrategies prepared_;
  std::deque<std::vector<Sequence>> due_;  ///< of this window, the next at the front
};

}  // namespace

std::unique_ptr<Policy> make_ahead(const PolicySetup& setup) {
  return std::make_unique<Ahead>(setup);
}

}  // namespace hydraulis
