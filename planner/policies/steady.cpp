#include <fmt/format.h>

#include <deque>

#include "planner/bounds.h"
#include "planner/policies/policies.h"
#include "planner/switch_path.h"

namespace hydraulis {
namespace {

/// Batches looked at, the due one among them.
constexpr std::size_t kWindow = 8;

class Steady : public Policy {
 public:
  explicit Steady(const PolicySetup& setup)
      : model_(setup.model),
        prepared_(prepare(setup.set, setup.model, setup.assignment)),
        traffic_(prepared_.traffic_seconds),
        switch_seconds_(setup.switch_seconds) {}

  std::size_t lookahead() const override { return kWindow - 1; }

  BatchPlan plan(std::span<const Batch> window) override {
    if (!coming_.empty()) coming_.pop_front();  // the due batch's, assigned in full below
    for (std::size_t b = coming_.size() + 1; b < window.size(); ++b) {
      coming_.push_back(least_seconds(sequences_of(window[b])));
    }
    const std::vector<std::vector<double>> rows(coming_.begin(), coming_.end());
    const std::vector<double> to_go = cost_to_go(rows, switch_seconds_, traffic_.size());
    for (std::size_t s = 0; s < traffic_.size(); ++s) {
      const bool switches = current_ >= 0 && static_cast<std::size_t>(current_) != s;
      prepared_.traffic_seconds[s] = traffic_[s] + to_go[s] + (switches ? switch_seconds_ : 0);
    }
    BatchPlan plan = assign(sequences_of(window.front()), prepared_);
    current_ = plan.strategy;
    return plan;
  }
  const CostModel& cost_model() const override { return model_; }
  const std::vector<Strategy>& strategies() const override { return prepared_.strategies; }
  std::string remark() const override {
    return fmt::format("{} strategies in the set, {} batches seen ahead",
                       prepared_.strategies.size(), kWindow - 1);
  }

 private:
  /// A lower bound of what each strategy takes for a batch, its parameter traffic included.
  std::vector<double> least_seconds(const std::vector<Sequence>& sequences) const {
    std::vector<double> seconds;
    for (std::size_t s = 0; s < traffic_.size(); ++s) {
      seconds.push_back(traffic_[s] + makespan_lower_bound(prepared_.pipelines[s], sequences,
                                                           BoundEffort::quick));
    }
    return seconds;
  }

  CostModel model_;
  PreparedStrategies prepared_;
  std::vector<double> traffic_;  ///< by strategy, without what is to come
  double switch_seconds_;
  std::deque<std::vector<double>> coming_;  ///< least_seconds of the batches after the due one
  int current_ = -1;
};

}  // namespace

std::unique_ptr<Policy> make_steady(const PolicySetup& setup) {
  return std::make_unique<Steady>(setup);
}

}  // namespace hydraulis
