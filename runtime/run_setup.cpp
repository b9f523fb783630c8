#include "runtime/run_setup.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "costmodel/host_states.h"
#include "kernels/cuda/compute.h"
#include "planner/parameter_traffic.h"
#include "planner/plan_build.h"
#include "runtime/hugging_face.h"
#include "runtime/memory_estimate.h"
#include "runtime/shard_context.h"

namespace hydraulis {
namespace {

constexpr int kTuningBatches = 8;

DataSettings data_settings(const RunConfig& config, const Plan& plan) {
  Json json = config.data;
  if (json.is_object()) {
    const bool sized = json.contains("tokens_per_batch") || json.contains("sequences_per_batch");
    if (!sized && plan.tokens_per_batch > 0) json["tokens_per_batch"] = plan.tokens_per_batch;
    if (!json.contains("context")) json["context"] = plan.context;
    if (!json.contains("seed")) json["seed"] = config.seed;
  }
  DataSettings settings = parse_data_settings(json, config.file.string(), "data");
  if (settings.sampling.context == 0) {
    throw InputError("{}: field 'data.context': 0, expected 1 to the plan's {}",
                     config.file.string(), plan.context);
  }
  if (config.validate_every > 0 && settings.held_out == 0) {
    throw InputError("{}: field 'validation': nothing is held out; set data.held_out",
                     config.file.string());
  }
  if (settings.sampling.context > plan.context) {
    throw InfeasibleError("{}: field 'data.context': {} tokens, the plan {} holds at most {}",
                          config.file.string(), settings.sampling.context, config.plan.string(),
                          plan.context);
  }
  return settings;
}

/// A plan that counts on states in host memory may not find them on the device.
OptimizerStates states_of(const RunConfig& config, const Plan& plan) {
  const OptimizerStates states = config.optimizer_states.value_or(plan.optimizer_states);
  if (plan.optimizer_states != OptimizerStates::host) return states;
  if (states == OptimizerStates::host && config.device == RunDevice::cuda) return states;
  throw InputError(
      "{}: field '{}': the plan {} was made for optimizer states in host memory, which takes "
      "\"device\": \"cuda\" and \"optimizer_states\": \"host\"",
      config.file.string(), states == OptimizerStates::host ? "device" : "optimizer_states",
      config.plan.string());
}

}  // namespace

RunSetup load_run_setup(const RunConfig& config) {
  RunSetup setup;
  const std::string name = config.plan.string();
  setup.plan = plan_from_json(read_json_file(config.plan), name);
  setup.model = cost_model_of(setup.plan, name);
  if (const Schedule schedule = setup.plan.schedule.schedule;
      schedule != Schedule::one_f_one_b && schedule != Schedule::gpipe) {
    throw InputError("{}: field 'schedule': {} can only be simulated, training runs 1f1b and gpipe",
                     name, to_string(setup.plan.schedule));
  }
  setup.model.numbers = number_bytes(static_cast<int>(size_of(config.type)));
  if (config.type == DataType::bf16) {
    // Gradients are summed in f32; the optimizer keeps masters, gradients and two moments in f32
    // and what it sends to the stages in bf16; cross entropy works on bf16 logits.
    setup.model.numbers.gradient = 4;
    setup.model.numbers.optimizer = 4 * 4 + 2;
    setup.model.numbers.logit = 2;
  }
  setup.model.states = states_of(config, setup.plan);
  if (setup.model.states == OptimizerStates::host) {
    setup.model.numbers.optimizer = kHostStatesDeviceBytes;
  }
  setup.decoder = load_decoder(setup.plan.model);
  if (const int head = setup.decoder.shape.head_dim;
      config.device == RunDevice::cuda &&
      std::find(cuda::kHeadSizes.begin(), cuda::kHeadSizes.end(), head) == cuda::kHeadSizes.end()) {
    throw InputError("model {}: heads of {}; on GPUs {} can be trained", setup.decoder.shape.name,
                     head, fmt::join(cuda::kHeadSizes, ", "));
  }
  for (const Strategy& strategy : setup.plan.set.strategies) {
    for (const Scheme& scheme : strategy) check_trainable(setup.decoder, scheme);
  }
  setup.data = data_settings(config, setup.plan);
  setup.data.vocabulary = setup.decoder.shape.vocab;
  return setup;
}

std::int64_t memory_limit_bytes(const RunConfig& config, const RunSetup& setup) {
  return static_cast<std::int64_t>(config.memory_limit_bytes > 0
                                       ? config.memory_limit_bytes
                                       : setup.model.cluster.device.memory_bytes);
}

PolicySetup policy_setup(const RunSetup& setup, std::span<const Batch> tuning) {
  PolicySetup policy;
  policy.model = setup.model;
  policy.set = setup.plan.set;
  policy.context = static_cast<std::int64_t>(setup.plan.context);
  policy.assignment.count_parameter_traffic = true;
  policy.batches = tuning;
  return policy;
}

std::vector<Batch> tuning_batches(const RunConfig& config, const RunSetup& setup) {
  std::vector<Batch> batches;
  if (config.policy == "hydraulis") return batches;
  TrainingData data(setup.data);
  for (int i = 0; i < kTuningBatches; ++i) batches.push_back(lengths_of(data.next()));
  return batches;
}

Batch lengths_of(const TrainingBatch& batch) { return {batch.ids(), batch.lengths()}; }

std::string strategy_text(const BatchPlan& plan) {
  std::string text;
  for (int phase = 0; phase < plan.phases(); ++phase) {
    Strategy strategy;
    for (const PipelinePlan& pipeline : plan.pipelines) {
      if (pipeline.phase == phase) strategy.push_back(pipeline.scheme);
    }
    text += (phase > 0 ? " > " : "") + to_string(strategy);
  }
  return text;
}

double predicted_seconds(const BatchPlan& plan, const CostModel& model) {
  double seconds = plan.makespan_seconds + parameter_traffic_seconds(plan, model);
  if (model.states == OptimizerStates::host) {
    seconds += host_step_seconds(model.cluster, owned_elements(model));
  }
  return seconds;
}

}  // namespace hydraulis
