#include "runtime/stage_run.h"

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "runtime/instruction_record.h"
#include "runtime/stop_signal.h"

namespace hydraulis {
namespace {

/// Channels by the sending stage's number in its pipeline.
Channel activations_from(int stage) {
  return stage % 2 == 0 ? Channel::activations : Channel::odd_activations;
}
Channel gradients_from(int stage) {
  return stage % 2 == 0 ? Channel::gradients : Channel::odd_gradients;
}

Tensor take(std::map<int, Tensor>& from, int micro_batch) {
  const auto found = from.find(micro_batch);
  if (found == from.end()) return {};
  Tensor tensor = std::move(found->second);
  from.erase(found);
  return tensor;
}

}  // namespace

template <typename Work>
void StageRun::naming(int i, const Work& work) const {
  try {
    work();
  } catch (const CommunicationError& error) {
    throw CommunicationError(fmt::format("{}: {}", describe(i), error.what()));
  } catch (const InfeasibleError& error) {
    throw InfeasibleError("{}: {}", describe(i), error.what());
  }
}

template <typename Work>
void StageRun::naming(Op op, const Work& work) const {
  int first = -1;
  if (stage_ != nullptr) {
    const auto found =
        std::find_if(stage_->instructions.begin(), stage_->instructions.end(),
                     [op](const Instruction& instruction) { return instruction.op == op; });
    if (found != stage_->instructions.end()) {
      first = static_cast<int>(found - stage_->instructions.begin());
    }
  }
  if (first >= 0) return naming(first, work);
  set_position(describe(op));
  naming_step(backend_, options_.iteration, op, work);
}

StageRun::StageRun(const StageRunSetup& setup, RankStage& here, ParameterFlow& flow,
                   IterationOutcome& outcome)
    : backend_(*setup.backend),
      decoder_(*setup.decoder),
      streams_(*setup.streams),
      program_(*setup.program),
      tokens_(*setup.tokens),
      options_(*setup.options),
      backwards_(setup.backwards),
      clear_gradients_(setup.clear_gradients),
      device_(*setup.backend->device),
      world_(*setup.backend->world),
      compute_(setup.streams->compute()),
      here_(here),
      flow_(flow),
      outcome_(outcome) {
  const std::shared_ptr<Event> now_there = device_.record(compute_);
  device_.synchronize(compute_);
  if (now_there->done()) device_clock_ = now_there->seconds() - now();
  if (here_.stage >= 0) stage_ = &program_.stages[here_.stage];
}

double StageRun::now() const {
  return std::chrono::duration<double>(Clock::now() - outcome_.began).count();
}

void StageRun::run(double started) {
  if (stage_ != nullptr) {
    prepare();
    if (backwards_ && clear_gradients_) here_.gradients->zero(compute_);
    execute_all();
  }
  const double reduced = now();
  if (backwards_) {
    naming(Op::reduce_gradients, [&] {
      flow_.finish_reduction(compute_);
      device_.synchronize(compute_);
    });
  }
  // What this rank gave may not change before others have read it.
  naming(Op::gather_parameters, [&] {
    for (const auto& [i, tensor] : leaving_) device_.wait(compute_, states_[i].event);
    flow_.wait_for_all(compute_);
    device_.synchronize(compute_);
  });
  if (stage_ == nullptr) return;
  poll();  // sends that were still on their way when the last instruction had started
  outcome_.loss_sum += here_.model->loss_sum();
  outcome_.targets += here_.model->targets();
  for (const auto& [micro_batch, losses] : here_.model->token_losses()) {
    outcome_.token_losses[{stage_->pipeline, micro_batch}] = losses;
  }
  record_reshards(started, reduced);
}

void StageRun::prepare() {
  StageModel& model = *here_.model;
  model.reset_loss();
  model.keep_token_losses = options_.keep_token_losses;
  model.before_layer = [this](int layer) {
    const double asked = now();
    flow_.wait_for_layer(layer, compute_);
    waited_for_parameters_ += now() - asked;
  };
  const auto micro_batches = program_.pipelines[stage_->pipeline].micro_batches.size();
  for (std::size_t i = 0; i < micro_batches; ++i) {
    model.prepare(static_cast<int>(i), tokens_(stage_->pipeline, static_cast<int>(i)));
  }
  plan_instructions();
}

void StageRun::plan_instructions() {
  const std::vector<Instruction>& instructions = stage_->instructions;
  states_.resize(instructions.size());
  queues_.resize(kStreams);
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    const Instruction& instruction = instructions[i];
    switch (instruction.op) {
      case Op::forward:
      case Op::send_activation:
      case Op::receive_activation:
        break;
      case Op::backward:
        last_backward_ = static_cast<int>(i);
        [[fallthrough]];
      case Op::send_gradient:
      case Op::receive_gradient:
        if (backwards_) break;
        finish_at_once(i);
        continue;
      case Op::gather_parameters:  // started for all layers at once; layers wait for their own
      case Op::reduce_gradients:   // leave as their layer's last backward ends
      case Op::gradient_norm:      // of the optimizer's step, which is the caller's
      case Op::optimizer_step:
      case Op::barrier:
        finish_at_once(i);
        continue;
      default:
        throw InputError("the runtime cannot execute {} yet (stage {}, instruction {})",
                         to_string(instruction.op), here_.stage, i);
    }
    queues_[static_cast<int>(instruction.stream)].push_back(static_cast<int>(i));
  }
}

void StageRun::execute_all() {
  std::vector<std::size_t> heads(kStreams, 0);
  double last_progress = now();
  for (;;) {
    bool moved = false;
    bool left = false;
    for (int kind = 0; kind < kStreams; ++kind) {
      const bool computes = kind == static_cast<int>(StreamKind::compute);
      while (heads[kind] < queues_[kind].size() && ready(queues_[kind][heads[kind]])) {
        start(queues_[kind][heads[kind]++]);
        moved = true;
        if (computes) break;  // let communication start before the next computation
      }
      left |= heads[kind] < queues_[kind].size();
    }
    moved |= poll();
    if (!left) break;
    if (moved) {
      last_progress = now();
    } else if (now() - last_progress > world_.timeout_seconds()) {
      throw CommunicationError(stuck(heads));
    } else {
      std::this_thread::yield();
    }
  }
}

bool StageRun::done(int i) {
  State& state = states_[i];
  if (state.done || !state.event) return state.done;
  naming(i, [&] {
    if (!state.event->done()) return;
    state.done = true;
    state.end = now();
  });
  return state.done;
}

bool StageRun::ready(int i) {
  const std::vector<int>& needs = stage_->instructions[i].depends_on;
  return std::all_of(needs.begin(), needs.end(), [this](int need) { return done(need); });
}

/// Looks after communications under way; true when one ended.
bool StageRun::poll() {
  bool ended = false;
  std::erase_if(under_way_, [&](int i) {
    if (!done(i)) return false;
    record(i);
    ended = true;
    return true;
  });
  std::erase_if(leaving_, [this](const auto& leaving) { return done(leaving.first); });
  return ended;
}

void StageRun::start(int i) {
  const Instruction& instruction = stage_->instructions[i];
  State& state = states_[i];
  state.started = true;
  state.start = now();
  const int mb = instruction.micro_batch;
  set_position(describe(i));
  naming(i, [&] {
    switch (instruction.op) {
      case Op::forward:
        waited_for_parameters_ = 0;
        activations_out_[mb] = here_.model->forward(mb, take(activations_in_, mb), backwards_);
        finish(i, waited_for_parameters_);
        break;
      case Op::backward:
        here_.model->after_backward_of_layer = nullptr;
        if (i == last_backward_) {
          here_.model->after_backward_of_layer = [this](int layer) { complete(layer); };
        }
        gradients_out_[mb] = here_.model->backward(mb, take(gradients_in_, mb));
        finish(i);
        break;
      case Op::receive_activation:
        receive(i, activations_in_[mb], activations_from(stage_->index - 1));
        break;
      case Op::receive_gradient:
        receive(i, gradients_in_[mb], gradients_from(stage_->index + 1));
        break;
      case Op::send_activation:
        send(i, take(activations_out_, mb), activations_from(stage_->index));
        break;
      case Op::send_gradient:
        send(i, take(gradients_out_, mb), gradients_from(stage_->index));
        break;
      default:
        break;
    }
  });
}

void StageRun::receive(int i, Tensor& into, Channel channel) {
  const int mb = stage_->instructions[i].micro_batch;
  into = Tensor(backend_, here_.model->shard_rows(mb), decoder_.shape.hidden);
  communicate(i,
              {rank_of_peer(stage_->instructions[i].peer), false, into.matrix.data, into.bytes()},
              channel);
}

void StageRun::send(int i, Tensor tensor, Channel channel) {
  device_.wait(stream_of(i), device_.record(compute_));
  communicate(
      i, {rank_of_peer(stage_->instructions[i].peer), true, tensor.matrix.data, tensor.bytes()},
      channel);
  leaving_.emplace_back(i, std::move(tensor));
}

void StageRun::communicate(int i, const Message& message, Channel channel) {
  world_.exchange({&message, 1}, channel, stream_of(i));
  states_[i].event = device_.record(stream_of(i));
  under_way_.push_back(i);
}

void StageRun::complete(int layer) {
  if (options_.record_events) reduction_start_[layer] = now();
  flow_.layer_complete(layer, compute_);
}

/// Waiting in between, for what other instructions bring, is not the instruction's own time.
void StageRun::finish(int i, double waited_seconds) {
  device_.synchronize(compute_);
  states_[i].done = true;
  states_[i].start += waited_seconds;
  states_[i].end = now();
  record(i);
}

}  // namespace hydraulis
