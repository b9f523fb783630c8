// failing_training CASE LAYOUT: a training job of which one rank fails inside a step, run under
// mpirun by training_failure_test.cpp. Ends as every program of the project must end it: prints a
// CommunicationError and aborts with exit code 7, anything else with 8.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/error.h"
#include "planner/program/lower.h"
#include "runtime/train_step.h"

namespace {

using namespace hydraulis;

constexpr int kFailingStep = 3;
constexpr int kFailingRank = 1;
constexpr int kMicroBatches = 4;

[[noreturn]] void sleep_long() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(300));
}

DecoderSpec decoder() {
  DecoderSpec result;
  result.shape = {"small", 4, 32, 42, 8, 2, 4, 97, false, false, false};
  return result;
}

Program program_of(const std::string& strategy, int devices) {
  BatchPlan plan;
  const std::vector<Strategy> strategies = parse_strategies(strategy, "the strategy");
  for (const Scheme& scheme : strategies.front()) {
    PipelinePlan& pipeline = plan.pipelines.emplace_back();
    pipeline.scheme = scheme;
    for (std::uint32_t i = 0; i < kMicroBatches; ++i) {
      pipeline.micro_batches.push_back({{i}, {20 + i}, 0});
    }
  }
  CostModel model;
  model.model = decoder().shape;
  model.cluster.nodes = 1;
  model.cluster.devices_per_node = devices;
  model.optimizer.dp = devices;
  return lower(plan, model);
}

/// The tokens that the plan says, unless this is the moment to fail.
MicroBatchTokens tokens_of(const std::string& failure, const Program& program, int pipeline,
                           int micro_batch) {
  if (micro_batch == 2) {
    if (failure == "throws") throw InputError("tokens.bin: could not be read");
    if (failure == "killed") std::raise(SIGKILL);
    if (failure == "silent") sleep_long();
  }
  MicroBatchTokens tokens;
  tokens.lengths = program.pipelines[pipeline].micro_batches[micro_batch].lengths;
  if (failure == "other_tokens") tokens.lengths[0] += 7;  // not what the others were told
  for (std::uint32_t i = 0; i < tokens.lengths[0]; ++i) {
    tokens.ids.push_back(static_cast<std::int32_t>(i % 97));
  }
  tokens.targets = next_token_targets(tokens.lengths, tokens.ids);
  return tokens;
}

void signal_later(int signal) {
  std::thread([signal] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::raise(signal);
  }).detach();
}

void train(const std::string& failure, const std::string& strategy, CpuProcess& process,
           int& step) {
  Communicator& world = *process.world;
  const auto compute = make_cpu_compute(*process.device);
  const Backend backend{process.device.get(), compute.get(), &world, DataType::f32};
  const DecoderSpec model = decoder();
  OptimizerLayout optimizer;
  optimizer.dp = world.size();
  OptimizerShard shard(backend, model, optimizer);
  shard.initialise(1);
  Executor executor(backend, model, shard);
  const Program program = program_of(strategy, world.size());
  const bool later = failure == "killed_later" || failure == "stopped_later";
  const bool mine = world.rank() == kFailingRank;
  for (; later || step < 6; ++step) {
    if (step == kFailingStep) {
      world.set_timeout_seconds(2);
      if (mine && later) signal_later(failure == "killed_later" ? SIGKILL : SIGSTOP);
    }
    const std::string now = mine && step == kFailingStep ? failure : "none";
    const TokenSource source = [&](int pipeline, int micro_batch) {
      return tokens_of(now, program, pipeline, micro_batch);
    };
    UpdateSettings settings;
    settings.update = step + 1;
    ExecuteOptions options;
    options.iteration = step;
    train_step(backend, executor, shard, program, source, settings, options);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CpuProcess process = start_cpu_process(1);
  int step = 0;
  try {
    train(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "", process, step);
  } catch (const CommunicationError& e) {
    std::fprintf(stderr, "CommunicationError: %s\n", e.what());
    process.world->abort(7);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %d, step %d: %s\n", process.world->rank(), step, e.what());
    process.world->abort(8);
  }
  return 0;
}
