#include "runtime/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <limits>
#include <numeric>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "costmodel/host_states.h"
#include "planner/program/lower.h"
#include "runtime/agreement.h"
#include "runtime/checkpoint_folder.h"
#include "runtime/folder_lock.h"
#include "runtime/memory_estimate.h"
#include "runtime/plan_ahead.h"
#include "runtime/run_checkpoint.h"
#include "runtime/run_logs.h"
#include "runtime/stop_signal.h"

namespace hydraulis {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMostValidationSequences = 1'000'000;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::deque<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// A run in progress on one rank.
class Trainer {
 public:
  Trainer(const Backend& backend, const RunConfig& config, const RunSetup& setup, Resume resume,
          const TrainListener& listener)
      : backend_(backend), config_(config), setup_(setup), resume_(resume), listener_(listener) {
    together(backend.hosts(), [&] {
      check_devices();
      check_output();
      data_.emplace(setup.data);
      if (backend.world->rank() == 0) lock_.emplace(config.output);
    });
  }

  TrainSummary run() {
    try {
      return run_steps();
    } catch (const CommunicationError& error) {
      const std::string what = error.what();
      if (what.starts_with("step ")) throw;  // the executor knows more
      throw CommunicationError(
          fmt::format("step {}, rank {}, {}: {}", step_, backend_.world->rank(), doing_, what));
    }
  }

 private:
  TrainSummary run_steps() {
    // Static policies look for their layout on some of the run's batches.
    together(backend_.hosts(), [&] {
      if (backend_.world->rank() == 0) tuning_ = tuning_batches(config_, setup_);
    });
    planner_.emplace(backend_, config_.policy, policy_setup(setup_, tuning_));
    model_ = setup_.model;
    model_.optimizer = planner_->optimizer();
    shard_.emplace(backend_, setup_.decoder, model_.optimizer, model_.states);
    executor_.emplace(backend_, setup_.decoder, *shard_);
    start_weights();
    together(backend_.hosts(), [&] {
      if (backend_.world->rank() == 0) logs_.emplace(config_, step_);
    });
    for (const std::string& text : data_->notes()) note(text);
    if (!planner_->remark().empty()) note(planner_->remark());
    const auto context = static_cast<double>(setup_.data.sampling.context);
    const std::string beyond = beyond_measurements(setup_.model, context, context);
    if (!beyond.empty()) note(beyond);
    if (setup_.model.states == OptimizerStates::host) note(host_step_text(setup_.model.cluster));
    summary_.first_step = step_;
    TrainingBatch batch;
    if (step_ < config_.steps) batch = next_batch();
    bool stop = false;
    while (step_ < config_.steps && !stop) {
      batch = train_one(batch);
      if (!end_reason_.empty()) {
        save();
        together(backend_.hosts(), [&] { throw InfeasibleError("{}", end_reason_); });
      }
      const bool last = step_ == config_.steps;
      doing_ = "agreeing whether to stop";
      stop = max_over_ranks(backend_, stop_requested() ? 1 : 0) > 0;
      if (stop) {
        stop_agreed();
        summary_.stopped = true;
        note(fmt::format("asked to stop: stopping after step {}", step_));
      }
      const bool due = config_.checkpoint_every > 0 && step_ % config_.checkpoint_every == 0;
      if (due || last || stop) save();
    }
    finish();
    return summary_;
  }

  void note(const std::string& text) const {
    if (backend_.world->rank() == 0 && listener_.note) listener_.note(text);
  }

  void check_devices() const {
    const int ranks = backend_.world->size();
    const int devices = setup_.model.cluster.devices();
    if (ranks != devices) {
      throw InfeasibleError(
          "{}: the plan is for {} devices, {} ranks were started; start {} (mpirun -n {}) or make "
          "a plan for {}",
          config_.plan.string(), devices, ranks, devices, devices, ranks);
    }
  }

  /// Two runs in one folder would mix their checkpoints and logs.
  void check_output() const {
    if (resume_ == Resume::newest) return;
    const auto checkpoints = list_checkpoints(config_.output / "checkpoints");
    if (checkpoints.empty()) return;
    throw InputError(
        "{}: holds checkpoints of an earlier run, the newest of step {}; go on with it by "
        "--resume auto, or name another output",
        config_.output.string(), checkpoints.back().step);
  }

  void start_weights() {
    std::optional<RunCheckpoint> found;
    if (resume_ == Resume::newest) {
      found = load_newest(backend_, config_.output / "checkpoints", setup_.decoder, *shard_,
                          [this](const std::string& text) { note(text); });
    }
    if (found) {
      step_ = found->step;
      updates_ = found->updates;
      recent_losses_.assign(found->recent_losses.begin(), found->recent_losses.end());
      together(backend_.hosts(), [&] { data_->seek(found->data, "the checkpoint"); });
      note(fmt::format("resuming after step {}", step_));
      if (step_ >= config_.steps) {
        note(fmt::format("nothing to do: {} asks for {} steps", config_.file.string(),
                         config_.steps));
      }
    } else if (!config_.initial.empty()) {
      together(backend_.hosts(),
               [&] { load_hugging_face(config_.initial, setup_.decoder, *shard_); });
      note(fmt::format("weights of {}", config_.initial.string()));
    } else {
      shard_->initialise(config_.seed);
    }
  }

  TrainingBatch next_batch() {
    TrainingBatch batch;
    doing_ = "drawing the next batch";
    together(backend_.hosts(), [&] { batch = data_->next(); });
    planner_->start(lengths_of(batch));
    return batch;
  }

  /// Trains the batch whose planning has been started, and starts on the next one's.
  TrainingBatch train_one(const TrainingBatch& batch) {
    const Clock::time_point began = Clock::now();
    doing_ = "agreeing on the next step's plan";
    const BatchPlan plan = planner_->take();
    const double waited = planner_->waited_seconds();
    const Json position = data_->position();
    TrainingBatch next;
    if (step_ + 1 < config_.steps) next = next_batch();
    ++step_;
    position_ = position;
    doing_ = "training";

    const Program program = lower(plan, model_, setup_.plan.schedule);
    summary_.predicted_peak_bytes =
        std::max(summary_.predicted_peak_bytes,
                 static_cast<std::int64_t>(estimate_memory(model_, program).total()));
    const TokenSource source = token_source(batch, program);
    UpdateSettings settings = config_.update;
    settings.update = updates_ + 1;
    settings.learning_rate = config_.learning_rate.at(settings.update);
    ExecuteOptions options;
    options.iteration = static_cast<int>(step_);
    options.record_events = step_ <= config_.timeline_steps;
    IterationOutcome mine;
    const std::function<bool(const StepOutcome&)> accept = [this](const StepOutcome& outcome) {
      return !is_spike(outcome.loss);
    };
    StepOutcome outcome = train_step(backend_, *executor_, *shard_, program, source, settings,
                                     options, &mine, accept);
    // Without the sign that some NaNs are printed with.
    for (double* value : {&outcome.loss, &outcome.gradient_norm}) {
      if (std::isnan(*value)) *value = std::numeric_limits<double>::quiet_NaN();
    }
    if (outcome.updated) ++updates_;
    account(outcome);

    StepReport report;
    report.step = step_;
    report.steps = config_.steps;
    report.loss = outcome.loss;
    report.gradient_norm = outcome.gradient_norm;
    report.learning_rate = settings.learning_rate;
    report.targets = outcome.targets;
    report.tokens = static_cast<std::int64_t>(lengths_of(batch).tokens());
    report.predicted_seconds = predicted_seconds(plan, model_);
    report.waited_seconds = waited;
    report.strategy = strategy_text(plan);
    report.updated = outcome.updated;
    report.seconds = seconds_since(began);
    longest_step_ = std::max(longest_step_, report.seconds);
    set_stop_grace(stop_grace(config_, longest_step_));
    if (config_.validate_every > 0 && step_ % config_.validate_every == 0) {
      doing_ = "validation";
      report.validation_loss = validate();
    }
    remember(report, batch, program, mine);
    return next;
  }

  /// Tokens of the program's micro-batches from a batch; both must outlive the source.
  TokenSource token_source(const TrainingBatch& batch, const Program& program) const {
    std::unordered_map<std::uint64_t, std::size_t> index;
    for (std::size_t i = 0; i < batch.sequences.size(); ++i) index[batch.sequences[i].id] = i;
    return [this, &batch, &program, index = std::move(index)](int pipeline, int micro_batch) {
      return tokens_of(batch, index, program.pipelines[pipeline].micro_batches[micro_batch]);
    };
  }

  MicroBatchTokens tokens_of(const TrainingBatch& batch,
                             const std::unordered_map<std::uint64_t, std::size_t>& index,
                             const MicroBatch& wanted) const {
    MicroBatchTokens tokens;
    std::vector<std::uint8_t> mask;
    for (const std::uint64_t id : wanted.sequence_ids) {
      const TrainingSequence& sequence = batch.sequences.at(index.at(id));
      const std::size_t begin = tokens.ids.size();
      tokens.lengths.push_back(sequence.length);
      tokens.ids.resize(begin + sequence.length);
      data_->read(sequence, std::span(tokens.ids).subspan(begin));
      mask.resize(begin + sequence.length, 1);
      const std::uint32_t prompt = std::min(data_->prompt_tokens(sequence), sequence.length);
      std::fill_n(mask.begin() + static_cast<std::ptrdiff_t>(begin), prompt, std::uint8_t{0});
    }
    tokens.targets = next_token_targets(tokens.lengths, tokens.ids, mask);
    return tokens;
  }

  bool is_spike(double loss) const {
    if (config_.spike_factor <= 0 || recent_losses_.size() < 8) return false;
    return loss > config_.spike_factor * median(recent_losses_);
  }

  void account(const StepOutcome& outcome) {
    if (outcome.updated) {
      bad_in_a_row_ = 0;
      recent_losses_.push_back(outcome.loss);
      if (static_cast<std::int64_t>(recent_losses_.size()) > config_.spike_window) {
        recent_losses_.pop_front();
      }
      return;
    }
    ++summary_.skipped;
    if (outcome.targets == 0) {
      note(fmt::format("step {}: no token of the batch is a target; no update", step_));
      return;
    }
    ++bad_in_a_row_;
    const std::string what = std::isfinite(outcome.loss) && std::isfinite(outcome.gradient_norm)
                                 ? fmt::format("loss {} jumped", outcome.loss)
                                 : fmt::format("loss {} or gradient norm {} is not finite",
                                               outcome.loss, outcome.gradient_norm);
    if (config_.bad_step == BadStep::stop || bad_in_a_row_ >= config_.most_bad_steps) {
      end_reason_ = fmt::format("step {}: {}; stopped{}", step_, what,
                                config_.bad_step == BadStep::stop
                                    ? std::string(" as bad_steps.policy says")
                                    : fmt::format(" after {} bad steps in a row", bad_in_a_row_));
      return;
    }
    note(fmt::format("step {}: {}; the update is skipped", step_, what));
  }

  /// Mean loss over the held-out batches, each planned as a training batch would be.
  double validate() {
    double loss = 0;
    double targets = 0;
    if (validation_.empty()) {
      together(backend_.hosts(), [&] {
        validation_ =
            data_->validation_batches(setup_.plan.tokens_per_batch, kMostValidationSequences);
        if (validation_.empty()) {
          throw InputError("{}: field 'validation': nothing is held out; set data.held_out",
                           config_.file.string());
        }
        if (static_cast<std::int64_t>(validation_.size()) > config_.validation_batches) {
          validation_.resize(config_.validation_batches);
        }
      });
      PlanAhead planner(backend_, config_.policy, policy_setup(setup_, tuning_));
      for (const TrainingBatch& batch : validation_) {
        planner.start(lengths_of(batch));
        validation_plans_.push_back(planner.take());
      }
    }
    for (std::size_t i = 0; i < validation_.size(); ++i) {
      const Program program = lower(validation_plans_[i], model_, setup_.plan.schedule);
      const TokenSource source = token_source(validation_[i], program);
      ExecuteOptions options;
      options.iteration = static_cast<int>(step_);
      const StepOutcome outcome =
          global_loss(backend_, executor_->evaluate(program, source, options));
      loss += outcome.loss * static_cast<double>(outcome.targets);
      targets += static_cast<double>(outcome.targets);
    }
    return targets > 0 ? loss / targets : 0;
  }

  void remember(const StepReport& report, const TrainingBatch& batch, const Program& program,
                const IterationOutcome& mine) {
    if (step_ - summary_.first_step > 1) {
      measured_.push_back(report.seconds);
      predicted_.push_back(report.predicted_seconds);
    }
    summary_.last_loss = report.loss;
    doing_ = "writing logs";
    if (step_ <= config_.timeline_steps) {
      timeline_.add(backend_, program, mine);
      together(backend_.hosts(), [&] {
        if (backend_.world->rank() == 0) {
          write_step_program(config_.output / "programs", step_, program);
        }
      });
    }
    if (backend_.world->rank() != 0) return;
    logs_->write(report, lengths_of(batch));
    if (listener_.step) listener_.step(report);
  }

  void save() {
    doing_ = "writing the checkpoint";
    RunCheckpoint state;
    state.step = step_;
    state.updates = updates_;
    state.data = position_;
    state.recent_losses.assign(recent_losses_.begin(), recent_losses_.end());
    summary_.checkpoint = save_checkpoint(backend_, config_, setup_.decoder, *shard_, state);
  }

  void finish() {
    doing_ = "ending";
    if (config_.timeline_steps > 0) {
      together(backend_.hosts(), [&] {
        if (backend_.world->rank() == 0) {
          timeline_.write(config_.output / "timeline.h5", setup_.decoder.shape.name);
        }
      });
    }
    summary_.steps = step_;
    const auto mean = [](const std::vector<double>& values) {
      return values.empty() ? 0.0
                            : std::accumulate(values.begin(), values.end(), 0.0) /
                                  static_cast<double>(values.size());
    };
    summary_.mean_seconds = mean(measured_);
    summary_.mean_predicted_seconds = mean(predicted_);
    summary_.peak_bytes = static_cast<std::int64_t>(
        max_over_ranks(backend_, static_cast<double>(backend_.device->memory().peak)));
  }

  const Backend& backend_;
  const RunConfig& config_;
  const RunSetup& setup_;
  const Resume resume_;
  const TrainListener& listener_;
  CostModel model_;                 ///< the setup's, with the policy's optimizer layout
  std::optional<FolderLock> lock_;  ///< of the output, on rank 0
  std::optional<TrainingData> data_;
  std::optional<OptimizerShard> shard_;
  std::optional<Executor> executor_;
  std::optional<PlanAhead> planner_;
  std::optional<RunLogs> logs_;
  TimelineCollector timeline_;
  std::vector<Batch> tuning_;
  std::vector<TrainingBatch> validation_;
  std::vector<BatchPlan> validation_plans_;
  std::int64_t step_ = 0;
  const char* doing_ = "starting";  ///< for messages about ranks that do not answer
  std::int64_t updates_ = 0;
  std::int64_t bad_in_a_row_ = 0;
  std::string end_reason_;          ///< why the run ends before its steps are done
  Json position_ = Json::object();  ///< of the data after the last finished step
  std::deque<double> recent_losses_;
  double longest_step_ = 0;
  std::vector<double> measured_;
  std::vector<double> predicted_;
  TrainSummary summary_;
};

}  // namespace

double stop_grace(const RunConfig& config, double longest_step_seconds) {
  return config.timeout_seconds + 2 * longest_step_seconds + 5;
}

TrainSummary train(const Backend& backend, const RunConfig& config, const RunSetup& setup,
                   Resume resume, const TrainListener& listener) {
  return Trainer(backend, config, setup, resume, listener).run();
}

}  // namespace hydraulis
