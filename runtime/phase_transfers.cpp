#include "runtime/phase_transfers.h"

#include <algorithm>

#include "planner/program/phases.h"

namespace hydraulis {
namespace {

void keep_own(const std::vector<Transfer>& transfers, int layer, int rank, RankTransfers& own) {
  for (const Transfer& transfer : transfers) {
    if (transfer.source == rank) own[layer].gives.push_back(transfer);
    if (transfer.destination == rank) own[layer].takes.push_back(transfer);
  }
}

}  // namespace

std::vector<PhaseTransfers> phase_transfers(const ModelSpec& model, const Program& program,
                                            int rank) {
  PhaseTraffic traffic(program, model);
  std::vector<PhaseTransfers> phases(
      program.pipelines.empty() ? 1 : static_cast<std::size_t>(program.pipelines.back().phase) + 1);
  for (int s = 0; s < static_cast<int>(program.stages.size()); ++s) {
    const Stage& stage = program.stages[static_cast<std::size_t>(s)];
    PhaseTransfers& phase =
        phases[static_cast<std::size_t>(program.pipelines[stage.pipeline].phase)];
    const bool keeps = traffic.keeps_gradients(s);
    if (keeps && std::ranges::find(stage.devices, rank) != stage.devices.end()) {
      phase.keeps_gradients = true;
    }
    std::vector<int> layers;
    if (stage.has_embedding) layers.push_back(kEmbeddingLayer);
    for (int layer = stage.layer_begin; layer < stage.layer_end; ++layer) layers.push_back(layer);
    if (stage.has_head) layers.push_back(model.layers);
    for (const int layer : layers) {
      keep_own(traffic.gather(s, layer), layer, rank, phase.gather);
      if (!keeps) keep_own(traffic.home(s, layer), layer, rank, phase.reduce);
    }
  }
  return phases;
}

}  // namespace hydraulis
