#include "planner/program/lower.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "planner/program/lower_sharded.h"
#include "planner/program/lower_stage.h"
#include "planner/program/phases.h"
#include "planner/program/placement.h"
#include "planner/program/reshard.h"
#include "planner/schedule_order.h"

namespace hydraulis {
namespace {

void check(const BatchPlan& plan, const CostModel& model) {
  if (plan.pipelines.empty()) throw InputError("lowering: the plan has no pipelines");
  if (model.model.layers < 1) throw InputError("lowering: the model has no layers");
  int phase = 0;
  for (const PipelinePlan& pipeline : plan.pipelines) {
    if (pipeline.phase < phase || pipeline.phase > phase + 1 ||
        (&pipeline == &plan.pipelines.front() && pipeline.phase != 0)) {
      throw InputError(
          "lowering: a pipeline of phase {} follows one of phase {}, expected {} or {}",
          pipeline.phase, phase, phase, phase + 1);
    }
    phase = pipeline.phase;
    const Scheme& scheme = pipeline.scheme;
    if (model.sharding == ParameterSharding::sharded && scheme.tp * scheme.pp != 1) {
      throw InputError("lowering: sharded parameters need tp 1 and pp 1, not the scheme {}",
                       to_string(scheme));
    }
  }
  const OptimizerLayout& optimizer = model.optimizer;
  if (optimizer.dp < 1 || optimizer.tp < 1 || optimizer.pp < 1) {
    throw InputError("optimizer layout: dp, tp and pp must be at least 1, not dp{} tp{} pp{}",
                     optimizer.dp, optimizer.tp, optimizer.pp);
  }
  const std::int64_t wanted = static_cast<std::int64_t>(optimizer.dp) * optimizer.tp * optimizer.pp;
  if (wanted > model.cluster.devices()) {
    throw InfeasibleError(
        "the optimizer layout dp{} tp{} pp{} needs {} devices, {} more than the cluster's {}",
        optimizer.dp, optimizer.tp, optimizer.pp, wanted, wanted - model.cluster.devices(),
        model.cluster.devices());
  }
}

/// The compute streams of a pipeline's stages; only schedules that look at times need a profile.
StageSteps steps_of(const PipelineProgram& pipeline, const CostModel& model,
                    const ScheduleChoice& choice) {
  if (needs_times(choice.schedule)) {
    return schedule_steps(choice,
                          schedule_work(model, pipeline.scheme, pipeline.micro_batches, choice));
  }
  StageSteps steps;
  for (int stage = 0; stage < pipeline.scheme.pp; ++stage) {
    steps.push_back(schedule_order(choice, pipeline.scheme.pp, stage,
                                   static_cast<int>(pipeline.micro_batches.size())));
  }
  return steps;
}

}  // namespace

Program lower(const BatchPlan& plan, const CostModel& model, const LowerOptions& options,
              Overlap overlap) {
  check(plan, model);
  Program program;
  program.model_name = model.model.name;
  program.layers = model.model.layers;
  program.devices = model.cluster.devices();
  program.devices_per_node = model.cluster.devices_per_node;
  program.optimizer = model.optimizer;
  program.sharding = model.sharding;
  const Placement placement = place_phases(plan, model.cluster);
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    const Scheme& scheme = plan.pipelines[p].scheme;
    const ScheduleChoice choice = on_scheme(options, scheme);
    if (choice.chunks > 1 && plan.phases() > 1) {
      throw InputError("schedule {}: not over an iteration of several phases", to_string(choice));
    }
    const std::vector<int> layers = virtual_stage_layers(scheme, model.model.layers, choice.chunks);
    program.pipelines.push_back({scheme, plan.pipelines[p].micro_batches,
                                 static_cast<int>(program.stages.size()), plan.pipelines[p].phase});
    int layer = 0;
    for (int s = 0; s < scheme.pp; ++s) {
      Stage stage;
      stage.pipeline = static_cast<int>(p);
      stage.index = s;
      stage.devices = placement[p][s];
      stage.layer_begin = layer;
      layer += layers[s];
      stage.layer_end = layer;
      stage.has_embedding = s == 0;
      stage.has_head = s + 1 == scheme.pp;
      program.stages.push_back(std::move(stage));
    }
    for (std::size_t v = static_cast<std::size_t>(scheme.pp); v < layers.size(); ++v) {
      const auto s = program.stages.size() - static_cast<std::size_t>(scheme.pp) +
                     v % static_cast<std::size_t>(scheme.pp);
      program.stages[s].more_layers.push_back({layer, layer + layers[v]});
      layer += layers[v];
    }
  }

  if (model.sharding == ParameterSharding::sharded) {
    write_sharded_streams(program, model);
    return program;
  }
  PhaseTraffic traffic(program, model.model);
  StageSteps steps;
  for (std::size_t i = 0; i < program.stages.size(); ++i) {
    Stage& stage = program.stages[i];
    const PipelineProgram& pipeline = program.pipelines[stage.pipeline];
    if (stage.index == 0) steps = steps_of(pipeline, model, on_scheme(options, pipeline.scheme));
    stage.instructions =
        stage_instructions(program, model, static_cast<int>(i),
                           {steps[static_cast<std::size_t>(stage.index)],
                            traffic.of(static_cast<int>(i)), plan.phases(), overlap});
  }
  return program;
}

}  // namespace hydraulis
