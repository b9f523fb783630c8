#include "planner/program/phases.h"

#include <algorithm>
#include <iterator>

namespace hydraulis {
namespace {

bool is_nothing(const LayerTraffic& traffic) { return traffic.summary == ReshardSummary{}; }

/// Layers that move nothing become one.
std::vector<LayerTraffic> joined(const std::vector<LayerTraffic>& layers) {
  std::vector<LayerTraffic> result;
  for (const LayerTraffic& layer : layers) {
    if (!result.empty() && is_nothing(layer) && is_nothing(result.back()) &&
        result.back().layer_end == layer.layer_begin) {
      result.back().layer_end = layer.layer_end;
    } else {
      result.push_back(layer);
    }
  }
  return result;
}

}  // namespace

Placement place_phases(const BatchPlan& plan, const ClusterSpec& cluster) {
  Placement placement;
  for (auto first = plan.pipelines.begin(); first != plan.pipelines.end();) {
    const auto last = std::find_if(first, plan.pipelines.end(), [&](const PipelinePlan& pipeline) {
      return pipeline.phase != first->phase;
    });
    std::vector<Scheme> schemes;
    for (; first != last; ++first) schemes.push_back(first->scheme);
    Placement phase = place(schemes, cluster);
    std::move(phase.begin(), phase.end(), std::back_inserter(placement));
  }
  return placement;
}

bool same_parameters(const Program& program, const Stage& stage, int phase) {
  const int tp = program.pipelines[stage.pipeline].scheme.tp;
  const auto holds_the_same = [&](std::size_t index) {
    for (const Stage& other : program.stages) {
      const PipelineProgram& pipeline = program.pipelines[other.pipeline];
      if (pipeline.phase != phase) continue;
      const auto found = std::ranges::find(other.devices, stage.devices[index]);
      if (found == other.devices.end()) continue;
      const auto there = static_cast<std::size_t>(found - other.devices.begin());
      const auto ranks = static_cast<std::size_t>(tp);
      return pipeline.scheme.tp == tp && there % ranks == index % ranks &&
             other.layer_begin == stage.layer_begin && other.layer_end == stage.layer_end;
    }
    return false;
  };
  for (std::size_t i = 0; i < stage.devices.size(); ++i) {
    if (!holds_the_same(i)) return false;
  }
  return true;
}

bool stays_in_place(const Program& program, const Stage& stage, const Instruction& instruction) {
  if (instruction.transfers > 0) return false;
  const int phase = program.pipelines[stage.pipeline].phase;
  if (instruction.op == Op::gather_parameters) {
    return phase > 0 && same_parameters(program, stage, phase - 1);
  }
  return instruction.op == Op::reduce_gradients && phase < program.pipelines.back().phase &&
         same_parameters(program, stage, phase + 1);
}

PhaseTraffic::PhaseTraffic(const Program& program, const ModelSpec& model)
    : program_(program),
      model_(model),
      optimizer_(model, program.optimizer, program.devices_per_node) {
  const std::size_t phases =
      program.pipelines.empty() ? 1 : static_cast<std::size_t>(program.pipelines.back().phase) + 1;
  parts_.resize(phases);
  sources_.resize(phases);
  outer_sources_.resize(phases);
  for (const Stage& stage : program.stages) {
    const PipelineProgram& pipeline = program.pipelines[stage.pipeline];
    for (std::size_t i = 0; i < stage.devices.size(); ++i) {
      parts_[pipeline.phase][stage.devices[i]] = {pipeline.scheme.tp,
                                                  static_cast<int>(i) % pipeline.scheme.tp,
                                                  stage.layer_begin, stage.layer_end};
    }
  }
}

StageTraffic PhaseTraffic::of(int index) {
  const Stage& stage = program_.stages[index];
  const PipelineProgram& pipeline = program_.pipelines[stage.pipeline];
  std::vector<LayerTraffic> layers;
  for (const auto& [layer, summary] : optimizer_.stage_summaries(stage, pipeline.scheme.tp)) {
    layers.push_back({layer, layer + 1, summary});
  }
  StageTraffic traffic;
  traffic.gather =
      pipeline.phase == 0 ? layers : from_phase(pipeline.phase - 1, stage, pipeline.scheme.tp);
  if (keeps_gradients(index)) {
    traffic.reduce = {{layers.front().layer_begin, layers.back().layer_end, {}}};
  } else {
    // The last layers' gradients are complete first, so they leave first.
    traffic.reduce.assign(layers.rbegin(), layers.rend());
  }
  return traffic;
}

PhaseTraffic::Holders PhaseTraffic::holders(int phase, int layer) const {
  Holders result;
  for (std::size_t s = 0; s < program_.stages.size(); ++s) {
    const Stage& stage = program_.stages[s];
    if (program_.pipelines[stage.pipeline].phase != phase) continue;
    if (layer >= stage.layer_begin && layer < stage.layer_end)
      result.push_back(static_cast<int>(s));
  }
  return result;
}

const TransferPlanner& PhaseTraffic::source(int phase, int layer) {
  const bool outer = layer == kEmbeddingLayer || layer == model_.layers;
  Holders key;
  if (outer) {
    const auto found = outer_sources_[phase].find(layer);
    if (found != outer_sources_[phase].end()) return found->second;
  } else {
    key = holders(phase, layer);
    const auto found = sources_[phase].find(key);
    if (found != sources_[phase].end()) return found->second;
  }
  Layout layout;
  const auto add = [&](const Stage& stage, int tp, int what) {
    const Layout held = stage_layout(model_, stage, tp, what);
    layout.insert(layout.end(), held.begin(), held.end());
  };
  for (const Stage& stage : program_.stages) {
    const PipelineProgram& pipeline = program_.pipelines[stage.pipeline];
    if (pipeline.phase != phase) continue;
    const int tp = pipeline.scheme.tp;
    if (layer == kEmbeddingLayer ? stage.has_embedding
        : layer == model_.layers ? stage.has_head
                                 : layer >= stage.layer_begin && layer < stage.layer_end) {
      add(stage, tp, layer);
    }
    if (layer == model_.layers && model_.tied_embeddings && stage.has_embedding) {
      add(stage, tp, kEmbeddingLayer);
    }
  }
  if (outer) {
    return outer_sources_[phase]
        .try_emplace(layer, layout, program_.devices_per_node)
        .first->second;
  }
  return sources_[phase].try_emplace(key, layout, program_.devices_per_node).first->second;
}

std::vector<LayerTraffic> PhaseTraffic::from_phase(int phase, const Stage& stage, int tp) {
  std::vector<LayerTraffic> layers;
  const TransferPlanner* before = nullptr;
  ReshardSummary summary;
  const auto add = [&](int layer) {
    const TransferPlanner& from = source(phase, layer);
    const bool like_the_last =
        layer > stage.layer_begin && layer < stage.layer_end && &from == before;
    if (!like_the_last) {
      summary = summarise(from.plan(stage_layout(model_, stage, tp, layer), kParameterBytes),
                          program_.devices_per_node);
    }
    before = &from;
    layers.push_back({layer, layer + 1, summary});
  };
  if (stage.has_embedding) add(kEmbeddingLayer);
  for (int layer = stage.layer_begin; layer < stage.layer_end; ++layer) add(layer);
  if (stage.has_head) add(model_.layers);
  return joined(layers);
}

std::vector<Transfer> PhaseTraffic::gather(int index, int layer) {
  const Stage& stage = program_.stages[static_cast<std::size_t>(index)];
  const PipelineProgram& pipeline = program_.pipelines[stage.pipeline];
  if (pipeline.phase == 0) return home(index, layer);
  return source(pipeline.phase - 1, layer)
      .plan(stage_layout(model_, stage, pipeline.scheme.tp, layer), kParameterBytes);
}

std::vector<Transfer> PhaseTraffic::home(int index, int layer) {
  const Stage& stage = program_.stages[static_cast<std::size_t>(index)];
  return optimizer_.transfers(stage, program_.pipelines[stage.pipeline].scheme.tp, layer);
}

bool PhaseTraffic::keeps_gradients(int index) const {
  const Stage& stage = program_.stages[static_cast<std::size_t>(index)];
  const auto phase = static_cast<std::size_t>(program_.pipelines[stage.pipeline].phase);
  if (phase + 1 >= parts_.size()) return false;
  const auto& now = parts_[phase];
  const auto& next = parts_[phase + 1];
  return std::all_of(stage.devices.begin(), stage.devices.end(), [&](int device) {
    const auto found = next.find(device);
    return found != next.end() && found->second == now.at(device);
  });
}

}  // namespace hydraulis
