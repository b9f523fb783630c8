#include <fmt/format.h>

#include "planner/policies/policies.h"

namespace hydraulis {
namespace {

class Hydraulis : public Policy {
 public:
  explicit Hydraulis(const PolicySetup& setup)
      : model_(setup.model), prepared_(prepare(setup.set, setup.model, setup.assignment)) {}

  BatchPlan plan(std::span<const Batch> window) override {
    return assign(sequences_of(window.front()), prepared_);
  }
  const CostModel& cost_model() const override { return model_; }
  const std::vector<Strategy>& strategies() const override { return prepared_.strategies; }
  std::string remark() const override {
    return fmt::format("{} strategies in the set", prepared_.strategies.size());
  }

 private:
  CostModel model_;
  PreparedStrategies prepared_;
};

}  // namespace

std::unique_ptr<Policy> make_hydraulis(const PolicySetup& setup) {
  return std::make_unique<Hydraulis>(setup);
}

}  // namespace hydraulis
