#include "runtime/executor.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "runtime/instruction_record.h"
#include "runtime/stage_run.h"

namespace hydraulis {
namespace {

using Clock = std::chrono::steady_clock;

/// Layouts whose transfers are remembered; some policies make up new ones for ever.
constexpr std::size_t kMostLayouts = 256;

/// What decides the transfers of a program: the same text, the same transfers.
std::string layout_key(const Program& program) {
  std::string key = fmt::format("{} {} {} {}|", program.devices, program.optimizer.dp,
                                program.optimizer.tp, program.optimizer.pp);
  for (const Stage& stage : program.stages) {
    const PipelineProgram& pipeline = program.pipelines[stage.pipeline];
    key += fmt::format("{}:{}:{}-{}:", pipeline.phase, to_string(pipeline.scheme),
                       stage.layer_begin, stage.layer_end);
    for (const int device : stage.devices) key += fmt::format("{},", device);
    key += '|';
  }
  return key;
}

}  // namespace

Executor::Executor(const Backend& backend, const DecoderSpec& decoder, OptimizerShard& shard)
    : backend_(backend),
      decoder_(decoder),
      shard_(shard),
      groups_(*backend.world),
      streams_(backend) {}

const std::vector<PhaseTransfers>& Executor::transfers_for(const Program& program) {
  std::string key = layout_key(program);
  const auto found = transfers_.find(key);
  if (found != transfers_.end()) return found->second;
  if (transfers_.size() >= kMostLayouts) transfers_.clear();
  return transfers_
      .emplace(std::move(key), phase_transfers(decoder_.shape, program, backend_.world->rank()))
      .first->second;
}

std::int64_t Executor::stage_elements() const {
  return here_.weights ? here_.weights->elements() : 0;
}

void Executor::check(const Program& program) const {
  for (const PipelineProgram& pipeline : program.pipelines) {
    check_trainable(decoder_, pipeline.scheme);
  }
  if (program.sharding == ParameterSharding::sharded) {
    throw InputError("programs with sharded parameters are only simulated");
  }
  if (program.devices != backend_.world->size()) {
    throw InfeasibleError("the program is for {} devices, {} ranks were started", program.devices,
                          backend_.world->size());
  }
}

/// Turns this rank to a phase. Memory that fits is kept; other memory goes before the new comes,
/// but for the parameters that the ranks give one another at a switch.
std::unique_ptr<ParameterFlow> Executor::enter(const Program& program, int phase,
                                               const PhaseTransfers& moved, int iteration) {
  RankStage next = find_place(program, phase, backend_.world->rank());
  std::string held = held_parameters(program, next);
  here_.model.reset();
  std::unique_ptr<StageParameters> before;
  if (held == held_) {
    next.weights = std::move(here_.weights);
    next.gradients = std::move(here_.gradients);
  } else if (phase > 0) {
    before = std::move(here_.weights);
  }
  here_ = std::move(next);
  held_ = std::move(held);
  const bool used = here_.stage >= 0;
  if (used && !here_.weights) {
    here_.weights = stage_memory(backend_, backend_.type, decoder_, program, here_);
    here_.weights->zero(streams_.compute());  // rows that pad the vocabulary stay 0
  }
  backend_.device->synchronize(streams_.compute());
  auto flow =
      std::make_unique<ParameterFlow>(backend_, shard_, moved, streams_.of(StreamKind::parameters),
                                      here_.weights.get(), here_.gradients.get());
  const auto naming_gather = [&](const auto& work) {
    naming_step(backend_, iteration, Op::gather_parameters, work);
  };
  if (phase > 0) {
    naming_gather([&] {
      flow->start_switch(before ? before.get() : here_.weights.get());
      flow->wait_for_all(streams_.compute());
      backend_.device->synchronize(streams_.compute());
    });
    before.reset();
  }
  if (used) {
    if (!here_.gradients) {
      here_.gradients = stage_memory(backend_, wide_type(backend_.type), decoder_, program, here_);
      flow->set_gradients(here_.gradients.get());
    }
    make_model(here_, program, backend_, decoder_, groups_, streams_);
  }
  if (phase == 0) naming_gather([&] { flow->start_gather(); });
  return flow;
}

/// The barrier between two phases. Waiting for the slowest rank is not the barrier's own time.
void Executor::meet(const Program& program, int number, const ExecuteOptions& options,
                    IterationOutcome& outcome) {
  Clock::time_point start;
  naming_step(backend_, options.iteration, Op::barrier, [&] {
    if (options.record_events) backend_.world->barrier();
    start = Clock::now();
    backend_.world->barrier();
  });
  record_together(backend_, program, options, Op::barrier, number, start, outcome);
}

IterationOutcome Executor::execute(const Program& program, const TokenSource& tokens,
                                   const ExecuteOptions& options, bool backwards) {
  IterationOutcome outcome;
  outcome.began = Clock::now();
  check(program);
  const std::vector<PhaseTransfers>& transfers = transfers_for(program);
  if (backwards) {
    const Matrix gradients = shard_.gradients();
    backend_.device->zero(gradients.data, gradients.elements() * size_of(gradients.type),
                          streams_.compute());
  }
  StageRunSetup setup;
  setup.backend = &backend_;
  setup.decoder = &decoder_;
  setup.streams = &streams_;
  setup.program = &program;
  setup.tokens = &tokens;
  setup.options = &options;
  setup.backwards = backwards;
  for (int phase = 0; phase < static_cast<int>(transfers.size()); ++phase) {
    if (phase > 0) meet(program, phase - 1, options, outcome);
    const double entered = std::chrono::duration<double>(Clock::now() - outcome.began).count();
    const PhaseTransfers& moved = transfers[static_cast<std::size_t>(phase)];
    const std::unique_ptr<ParameterFlow> flow = enter(program, phase, moved, options.iteration);
    StageRun(setup, here_, *flow, outcome).run(entered);
    setup.clear_gradients = !moved.keeps_gradients;
  }
  return outcome;
}

IterationOutcome Executor::run(const Program& program, const TokenSource& tokens,
                               const ExecuteOptions& options) {
  return execute(program, tokens, options, true);
}

IterationOutcome Executor::evaluate(const Program& program, const TokenSource& tokens,
                                    const ExecuteOptions& options) {
  return execute(program, tokens, options, false);
}

}  // namespace hydraulis
