#include "runtime/plan_ahead.h"

#include <chrono>

#include "runtime/agreement.h"
#include "runtime/plan_message.h"

namespace hydraulis {

PlanAhead::PlanAhead(const Backend& backend, const std::string& policy, const PolicySetup& setup)
    : backend_(backend) {
  together(backend.hosts(), [&] {
    if (backend_.world->rank() != 0) return;
    policy_ = make_policy(policy, setup);
    remark_ = policy_->remark();
    optimizer_ = policy_->cost_model().optimizer;
  });
  optimizer_ = decode_layout(broadcast_bytes(backend, encode(optimizer_)));
}

PlanAhead::~PlanAhead() {
  if (planned_.valid()) planned_.wait();
}

void PlanAhead::start(const Batch& batch) {
  if (!policy_) return;
  planned_ =
      std::async(std::launch::async, [this, batch] { return policy_->plan(std::span(&batch, 1)); });
}

BatchPlan PlanAhead::take() {
  const auto began = std::chrono::steady_clock::now();
  std::vector<std::uint8_t> message;
  together(backend_.hosts(), [&] {
    if (policy_) message = encode(planned_.get());
    waited_seconds_ =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  });
  return decode_plan(broadcast_bytes(backend_, std::move(message)));
}

}  // namespace hydraulis
