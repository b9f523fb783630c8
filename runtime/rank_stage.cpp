#include "runtime/rank_stage.h"

#include <fmt/format.h>

#include <algorithm>

namespace hydraulis {

RankStreams::RankStreams(const Backend& backend) : compute_(backend) {
  for (int kind = 0; kind < kStreams; ++kind) {
    const bool computes = kind == static_cast<int>(StreamKind::compute);
    others_.push_back(computes ? nullptr : backend.device->make_stream());
  }
  ring_ = backend.device->make_stream();
}

RankStage find_place(const Program& program, int phase, int rank) {
  RankStage place;
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    if (program.pipelines[program.stages[s].pipeline].phase != phase) continue;
    const std::vector<int>& devices = program.stages[s].devices;
    const auto found = std::find(devices.begin(), devices.end(), rank);
    if (found == devices.end()) continue;
    place.stage = static_cast<int>(s);
    place.index = static_cast<int>(found - devices.begin());
  }
  return place;
}

std::string held_parameters(const Program& program, const RankStage& place) {
  if (place.stage < 0) return {};
  const Stage& stage = program.stages[place.stage];
  const int tp = program.pipelines[stage.pipeline].scheme.tp;
  return fmt::format("{}/{} {}-{} {} {}", place.index % tp, tp, stage.layer_begin, stage.layer_end,
                     stage.has_embedding, stage.has_head);
}

std::unique_ptr<StageParameters> stage_memory(const Backend& backend, DataType type,
                                              const DecoderSpec& decoder, const Program& program,
                                              const RankStage& place) {
  const Stage& stage = program.stages[place.stage];
  const int tp = program.pipelines[stage.pipeline].scheme.tp;
  return std::make_unique<StageParameters>(backend, type, decoder.shape, stage, tp,
                                           place.index % tp);
}

void make_model(RankStage& here, const Program& program, const Backend& backend,
                const DecoderSpec& decoder, ProcessGroups& groups, const RankStreams& streams) {
  const Stage& stage = program.stages[here.stage];
  const Scheme& scheme = program.pipelines[stage.pipeline].scheme;
  ShardContext context;
  context.backend = &backend;
  context.decoder = &decoder;
  context.tp = scheme.tp;
  context.cp = scheme.cp;
  context.tensor_rank = here.index % scheme.tp;
  context.context_rank = here.index / scheme.tp;
  context.recompute = scheme.recompute;
  context.compute = &streams.compute();
  context.ring = &streams.ring();
  std::vector<int> tensor_members;
  for (int t = 0; t < scheme.tp; ++t) {
    tensor_members.push_back(stage.devices[context.context_rank * scheme.tp + t]);
  }
  context.tensor_group = groups.group(tensor_members);
  std::vector<int> context_members;
  for (int c = 0; c < scheme.cp; ++c) {
    context_members.push_back(stage.devices[c * scheme.tp + context.tensor_rank]);
  }
  context.context_group = groups.group(context_members);
  here.model = std::make_unique<StageModel>(context, stage, *here.weights, *here.gradients);
}

}  // namespace hydraulis
