#include "runtime/executor.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "runtime/stop_signal.h"

namespace hydraulis {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// What decides the transfers and groups of a program: the same text, the same layout.
std::string layout_key(const Program& program) {
  std::string key = fmt::format("{} {} {} {}|", program.devices, program.optimizer.dp,
                                program.optimizer.tp, program.optimizer.pp);
  for (const Stage& stage : program.stages) {
    const Scheme& scheme = program.pipelines[stage.pipeline].scheme;
    key += fmt::format("{}:{}:{}-{}:", stage.pipeline, to_string(scheme), stage.layer_begin,
                       stage.layer_end);
    for (const int device : stage.devices) key += fmt::format("{},", device);
    key += '|';
  }
  return key;
}

/// Where this rank stands in a program.
struct Place {
  int stage = -1;  ///< global index, −1: the program does not use this device
  int index = 0;   ///< within the stage's devices
};

Place find_place(const Program& program, int rank) {
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const std::vector<int>& devices = program.stages[s].devices;
    const auto found = std::find(devices.begin(), devices.end(), rank);
    if (found != devices.end()) {
      return {static_cast<int>(s), static_cast<int>(found - devices.begin())};
    }
  }
  return {};
}

/// Channels by the sending stage's number in its pipeline.
Channel activations_from(int stage) {
  return stage % 2 == 0 ? Channel::activations : Channel::odd_activations;
}
Channel gradients_from(int stage) {
  return stage % 2 == 0 ? Channel::gradients : Channel::odd_gradients;
}

}  // namespace

/// The stage of this rank in one strategy: its memory and model. The next strategy replaces it.
struct Executor::Layout {
  std::string key;
  Place place;
  std::unique_ptr<StageParameters> weights;
  std::unique_ptr<StageParameters> gradients;
  std::unique_ptr<StageModel> model;
  std::unique_ptr<ParameterFlow> flow;
};

Executor::Executor(const Backend& backend, const DecoderSpec& decoder, OptimizerShard& shard)
    : backend_(backend),
      decoder_(decoder),
      shard_(shard),
      groups_(*backend.world),
      compute_(backend) {
  for (int kind = 0; kind < kStreams; ++kind) {
    const bool computes = kind == static_cast<int>(StreamKind::compute);
    streams_.push_back(computes ? nullptr : backend.device->make_stream());
  }
  ring_ = backend.device->make_stream();
}

Executor::~Executor() = default;

Executor::Layout& Executor::layout_for(const Program& program) {
  std::string key = layout_key(program);
  if (layout_ && layout_->key == key) return *layout_;
  layout_.reset();  // its memory first
  auto found = transfers_.find(key);
  if (found == transfers_.end()) {
    found = transfers_.emplace(key, rank_transfers(decoder_.shape, program, backend_.world->rank()))
                .first;
  }
  layout_ = std::make_unique<Layout>();
  layout_->key = std::move(key);
  layout_->place = find_place(program, backend_.world->rank());
  const Place place = layout_->place;
  if (place.stage >= 0) {
    const Stage& stage = program.stages[place.stage];
    const Scheme& scheme = program.pipelines[stage.pipeline].scheme;
    ShardContext context;
    context.backend = &backend_;
    context.decoder = &decoder_;
    context.tp = scheme.tp;
    context.cp = scheme.cp;
    context.tensor_rank = place.index % scheme.tp;
    context.context_rank = place.index / scheme.tp;
    context.recompute = scheme.recompute;
    context.compute = &*compute_;
    context.ring = ring_.get();
    std::vector<int> tensor_members;
    for (int t = 0; t < scheme.tp; ++t) {
      tensor_members.push_back(stage.devices[context.context_rank * scheme.tp + t]);
    }
    context.tensor_group = groups_.group(tensor_members);
    std::vector<int> context_members;
    for (int c = 0; c < scheme.cp; ++c) {
      context_members.push_back(stage.devices[c * scheme.tp + context.tensor_rank]);
    }
    context.context_group = groups_.group(context_members);
    layout_->weights = std::make_unique<StageParameters>(backend_, backend_.type, decoder_.shape,
                                                         stage, scheme.tp, context.tensor_rank);
    layout_->gradients = std::make_unique<StageParameters>(
        backend_, wide_type(backend_.type), decoder_.shape, stage, scheme.tp, context.tensor_rank);
    layout_->weights->zero(*context.compute);  // rows that pad the vocabulary stay 0
    layout_->model =
        std::make_unique<StageModel>(context, stage, *layout_->weights, *layout_->gradients);
  }
  layout_->flow = std::make_unique<ParameterFlow>(backend_, shard_, found->second,
                                                  layout_->weights.get(), layout_->gradients.get());
  return *layout_;
}

std::int64_t Executor::stage_elements() const {
  return layout_ && layout_->weights ? layout_->weights->elements() : 0;
}

/// One iteration on one rank.
class Executor::Run {
 public:
  Run(Executor& executor, Layout& layout, const Program& program, const TokenSource& tokens,
      const ExecuteOptions& options, bool backwards, Clock::time_point began)
      : executor_(executor),
        device_(*executor.backend_.device),
        world_(*executor.backend_.world),
        layout_(layout),
        program_(program),
        options_(options),
        backwards_(backwards),
        compute_(*executor.compute_),
        start_clock_(began) {
    outcome_.began = start_clock_;
    const std::shared_ptr<Event> now = device_.record(compute_);
    device_.synchronize(compute_);
    if (now->done()) device_clock_ = now->seconds() - seconds_since(start_clock_);
    if (layout_.place.stage >= 0) stage_ = &program.stages[layout_.place.stage];
    naming(Op::gather_parameters, [&] { layout_.flow->start_gather(); });
    if (stage_ == nullptr) return;
    StageModel& model = *layout_.model;
    model.reset_loss();
    model.keep_token_losses = options.keep_token_losses;
    model.before_layer = [this](int layer) {
      const Clock::time_point asked = Clock::now();
      layout_.flow->wait_for_layer(layer, compute_);
      waited_for_parameters_ += seconds_since(asked);
    };
    const auto micro_batches = program.pipelines[stage_->pipeline].micro_batches.size();
    for (std::size_t i = 0; i < micro_batches; ++i) {
      model.prepare(static_cast<int>(i), tokens(stage_->pipeline, static_cast<int>(i)));
    }
    plan_instructions();
  }

  IterationOutcome run() {
    if (stage_ != nullptr) {
      if (backwards_) layout_.gradients->zero(compute_);
      execute_all();
    }
    if (backwards_) {
      naming(Op::reduce_gradients, [&] {
        layout_.flow->finish_reduction(compute_);
        device_.synchronize(compute_);
      });
    }
    // Masters of this rank may not change before others have read them.
    naming(Op::gather_parameters, [&] {
      for (const auto& [i, tensor] : leaving_) device_.wait(compute_, states_[i].event);
      for (const auto& [layer, transfers] : executor_.transfers_.at(layout_.key)) {
        layout_.flow->wait_for_layer(layer, compute_);
      }
      device_.synchronize(compute_);
    });
    if (stage_ != nullptr) {
      poll();  // sends that were still on their way when the last instruction had started
      outcome_.loss_sum = layout_.model->loss_sum();
      outcome_.targets = layout_.model->targets();
      outcome_.token_losses = layout_.model->token_losses();
      record_reshards();
    }
    return std::move(outcome_);
  }

 private:
  struct State {
    bool started = false;
    bool done = false;
    std::shared_ptr<Event> event;  ///< of a communication still on its way
    double start = 0;
    double end = 0;
  };

  int rank_of_peer(int stage) const { return program_.stages[stage].devices[layout_.place.index]; }

  void plan_instructions() {
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
                           to_string(instruction.op), layout_.place.stage, i);
      }
      queues_[static_cast<int>(instruction.stream)].push_back(static_cast<int>(i));
    }
  }

  void finish_at_once(std::size_t i) { states_[i].started = states_[i].done = true; }

  void execute_all() {
    std::vector<std::size_t> heads(kStreams, 0);
    auto last_progress = Clock::now();
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
        last_progress = Clock::now();
      } else if (seconds_since(last_progress) > world_.timeout_seconds()) {
        throw CommunicationError(stuck(heads));
      } else {
        std::this_thread::yield();
      }
    }
  }

  bool done(int i) {
    State& state = states_[i];
    if (state.done || !state.event) return state.done;
    naming(i, [&] {
      if (!state.event->done()) return;
      state.done = true;
      state.end = seconds_since(start_clock_);
    });
    return state.done;
  }

  bool ready(int i) {
    const std::vector<int>& needs = stage_->instructions[i].depends_on;
    return std::all_of(needs.begin(), needs.end(), [this](int need) { return done(need); });
  }

  /// Looks after communications under way; true when one ended.
  bool poll() {
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

  void start(int i) {
    const Instruction& instruction = stage_->instructions[i];
    State& state = states_[i];
    state.started = true;
    state.start = seconds_since(start_clock_);
    const int mb = instruction.micro_batch;
    set_position(describe(i));
    naming(i, [&] {
      switch (instruction.op) {
        case Op::forward:
          waited_for_parameters_ = 0;
          activations_out_[mb] = layout_.model->forward(mb, take(activations_in_, mb), backwards_);
          finish(i, waited_for_parameters_);
          break;
        case Op::backward:
          layout_.model->after_backward_of_layer = nullptr;
          if (i == last_backward_) {
            layout_.model->after_backward_of_layer = [this](int layer) { complete(layer); };
          }
          gradients_out_[mb] = layout_.model->backward(mb, take(gradients_in_, mb));
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

  /// Does `work`; what fails in it names the step, the rank and the instruction.
  template <typename Work>
  void naming(int i, const Work& work) const {
    try {
      work();
    } catch (const CommunicationError& error) {
      throw CommunicationError(fmt::format("{}: {}", describe(i), error.what()));
    } catch (const InfeasibleError& error) {
      throw InfeasibleError("{}: {}", describe(i), error.what());
    }
  }
  /// What belongs to all instructions of this kind together names the first.
  template <typename Work>
  void naming(Op op, const Work& work) const {
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
    try {
      work();
    } catch (const CommunicationError& error) {
      throw CommunicationError(fmt::format("{}: {}", describe(op), error.what()));
    }
  }

  std::string describe(Op op) const {
    return fmt::format("step {}, rank {}, {}", options_.iteration, world_.rank(), to_string(op));
  }

  std::string describe(int i) const {
    const Instruction& instruction = stage_->instructions[i];
    std::string what = to_string(instruction.op);
    if (instruction.micro_batch >= 0) {
      what += fmt::format(" of micro-batch {}", instruction.micro_batch);
    }
    return fmt::format("step {}, rank {}, stage {}, {} [instruction {}]", options_.iteration,
                       world_.rank(), layout_.place.stage, what, i);
  }

  std::string stuck(const std::vector<std::size_t>& heads) const {
    std::string text = fmt::format("no progress for {:.0f} s; waiting: ", world_.timeout_seconds());
    const char* separator = "";
    for (const int i : under_way_) {
      text += separator + describe(i);
      separator = "; ";
    }
    for (int kind = 0; kind < kStreams; ++kind) {
      if (heads[kind] < queues_[kind].size()) {
        text += separator + describe(queues_[kind][heads[kind]]);
        separator = "; ";
      }
    }
    return text;
  }

  static Tensor take(std::map<int, Tensor>& from, int micro_batch) {
    const auto found = from.find(micro_batch);
    if (found == from.end()) return {};
    Tensor tensor = std::move(found->second);
    from.erase(found);
    return tensor;
  }

  Stream& stream_of(int i) { return executor_.stream(stage_->instructions[i].stream); }

  void receive(int i, Tensor& into, Channel channel) {
    const int mb = stage_->instructions[i].micro_batch;
    into =
        Tensor(executor_.backend_, layout_.model->shard_rows(mb), executor_.decoder_.shape.hidden);
    communicate(i,
                {rank_of_peer(stage_->instructions[i].peer), false, into.matrix.data, into.bytes()},
                channel);
  }

  void send(int i, Tensor tensor, Channel channel) {
    device_.wait(stream_of(i), device_.record(compute_));
    communicate(
        i, {rank_of_peer(stage_->instructions[i].peer), true, tensor.matrix.data, tensor.bytes()},
        channel);
    leaving_.emplace_back(i, std::move(tensor));
  }

  void communicate(int i, const Message& message, Channel channel) {
    world_.exchange({&message, 1}, channel, stream_of(i));
    states_[i].event = device_.record(stream_of(i));
    under_way_.push_back(i);
  }

  void complete(int layer) {
    if (options_.record_events) reduction_start_[layer] = seconds_since(start_clock_);
    layout_.flow->layer_complete(layer, compute_);
  }

  /// Waiting in between, for what other instructions bring, is not the instruction's own time.
  void finish(int i, double waited_seconds = 0) {
    device_.synchronize(compute_);
    states_[i].done = true;
    states_[i].start += waited_seconds;
    states_[i].end = seconds_since(start_clock_);
    record(i);
  }

  void record(int i) {
    if (!options_.record_events) return;
    const Instruction& instruction = stage_->instructions[i];
    TimelineEvent event;
    event.iteration = options_.iteration;
    event.stage = layout_.place.stage;
    event.instruction = i;
    event.op = instruction.op;
    event.stream = instruction.stream;
    event.micro_batch = instruction.micro_batch;
    event.start_seconds = states_[i].start;
    event.end_seconds = states_[i].end;
    event.bytes = instruction.intra_node_bytes + instruction.inter_node_bytes;
    outcome_.events.push_back(event);
  }

  /// Parameter gathers run from the start, reductions from their layer's last backward to the end.
  void record_reshards() {
    if (!options_.record_events) return;
    const double end = seconds_since(start_clock_);
    const std::vector<Instruction>& instructions = stage_->instructions;
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      const Instruction& instruction = instructions[i];
      if (instruction.op == Op::gather_parameters) {
        states_[i].start = 0;
        states_[i].end = std::clamp(
            layout_.flow->gathered_seconds(instruction.layer_begin) - device_clock_, 0.0, end);
        record(static_cast<int>(i));
      } else if (instruction.op == Op::reduce_gradients && backwards_) {
        const auto found = reduction_start_.find(instruction.layer_begin);
        states_[i].start = found == reduction_start_.end() ? end : found->second;
        states_[i].end = end;
        record(static_cast<int>(i));
      }
    }
  }

  Executor& executor_;
  Device& device_;
  Communicator& world_;
  Layout& layout_;
  const Program& program_;
  const ExecuteOptions& options_;
  bool backwards_;
  Stream& compute_;
  Clock::time_point start_clock_;
  double device_clock_ = 0;           ///< of the device's events at start_clock_
  double waited_for_parameters_ = 0;  ///< seconds, in the forward under way
  const Stage* stage_ = nullptr;
  int last_backward_ = -1;
  std::vector<State> states_;
  std::vector<std::vector<int>> queues_;  ///< instructions by StreamKind
  std::vector<int> under_way_;            ///< communications
  std::map<int, Tensor> activations_in_;
  std::map<int, Tensor> activations_out_;
  std::map<int, Tensor> gradients_in_;
  std::map<int, Tensor> gradients_out_;
  std::vector<std::pair<int, Tensor>> leaving_;  ///< sends under way, with what they send
  std::map<int, double> reduction_start_;
  IterationOutcome outcome_;
};

IterationOutcome Executor::execute(const Program& program, const TokenSource& tokens,
                                   const ExecuteOptions& options, bool backwards) {
  const Clock::time_point began = Clock::now();
  for (const PipelineProgram& pipeline : program.pipelines) {
    check_trainable(decoder_, pipeline.scheme);
  }
  if (program.devices != backend_.world->size()) {
    throw InfeasibleError("the program is for {} devices, {} ranks were started", program.devices,
                          backend_.world->size());
  }
  Layout& layout = layout_for(program);
  if (backwards) {
    const Matrix gradients = shard_.gradients();
    backend_.device->zero(gradients.data, gradients.elements() * size_of(gradients.type),
                          *compute_);
  }
  return Run(*this, layout, program, tokens, options, backwards, began).run();
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
