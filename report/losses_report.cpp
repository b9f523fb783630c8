#include "report/losses_report.h"

namespace hydraulis {

std::vector<LossShare> loss_shares(const Losses& losses) {
  const double whole = losses.whole();
  const auto share = [whole](double part) { return whole > 0 ? part / whole : 0; };
  return {{"computing tokens", "work", share(losses.work)},
          {"computing padding", "padding", share(losses.padding)},
          {"optimizer step", "optimizer", share(losses.optimizer)},
          {"exposed communication", "exposed_communication", share(losses.exposed)},
          {"pipeline bubbles", "bubble", share(losses.bubble)},
          {"waiting for slower pipelines", "straggler", share(losses.straggler)},
          {"devices without work", "unused", share(losses.unused)}};
}

Json losses_json(const Losses& losses) {
  Json json = Json::object();
  for (const LossShare& loss : loss_shares(losses)) json[loss.key] = loss.share;
  return json;
}

}  // namespace hydraulis
