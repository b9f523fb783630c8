#include "sim/iterations.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "costmodel/node_groups.h"
#include "planner/schedule_plan.h"

namespace hydraulis {
namespace {

constexpr int kMostThreads = 1024;

void check_memory(const Program& program, const Replay& replay, const CostModel& model) {
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const Scheme& placed = program.pipelines[program.stages[s].pipeline].scheme;
    const double limit = memory_limit_bytes(model, placed.group);
    const double used = replay.stages[s].memory_bytes;
    if (used <= limit) continue;
    const Stage& stage = program.stages[s];
    const Scheme& scheme = program.pipelines[stage.pipeline].scheme;
    throw InfeasibleError(
        "out of memory: pipeline {} {} stage {} needs {:.2f} GB with {} micro-batches ({} tokens) "
        "alive, {:.2f} GB over the limit of {:.2f} GB; micro-batches of at most {} tokens fit",
        stage.pipeline, to_string(scheme), stage.index, used / 1e9,
        replay.stages[s].peak_live_micro_batches, replay.stages[s].peak_live_tokens,
        (used - limit) / 1e9, limit / 1e9,
        max_tokens(model, scheme, replay.stages[s].peak_live_micro_batches + stage.index));
  }
}

bool runs_out_of_memory(const Program& program, const Replay& replay, const CostModel& model) {
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const StageReplay& stage = replay.stages[s];
    const Scheme& scheme = program.pipelines[program.stages[s].pipeline].scheme;
    if (model.memory == MemoryModel::composed) {
      if (stage.memory_bytes > memory_limit_bytes(model, scheme.group)) return true;
      continue;
    }
    const double most = static_cast<double>(max_tokens(model, scheme)) * scheme.pp;
    if (static_cast<double>(stage.peak_live_tokens) > most) return true;
  }
  return false;
}

IterationResult measure(const CostModel& model, const Program& program, const Replay& replay) {
  IterationResult result;
  result.time_seconds = replay.makespan_seconds;
  result.events = replay.events;
  double sum_squares = 0;
  for (const PipelineProgram& pipeline : program.pipelines) {
    for (const MicroBatch& batch : pipeline.micro_batches) {
      result.tokens += batch.tokens();
      sum_squares += batch.sum_squares();
    }
  }
  result.bubble_share = bubble_share(program, replay);
  result.exposed_communication_seconds = exposed_communication_seconds(program, replay);
  result.flops = training_flops(model.model, static_cast<double>(result.tokens), sum_squares);
  const double able =
      result.time_seconds * model.cluster.devices() * mean_peak_flops(model.cluster);
  result.mfu = able > 0 ? result.flops / able : 0;
  for (const StageReplay& stage : replay.stages) {
    result.memory_bytes = std::max(result.memory_bytes, stage.memory_bytes);
  }
  result.losses = split_losses(program, replay, model);
  return result;
}

/// The iterations of a run, handed out in order to any number of workers. Because they are handed
/// out in order and nothing is handed out after an error, the earliest error is always found.
class Run {
 public:
  Run(std::span<const BatchPlan> plans, const CostModel& model, const IterationOptions& options,
      std::size_t first)
      : plans_(plans), model_(model), options_(options), first_(first), results_(plans.size()) {}

  std::vector<IterationResult> on_threads(int threads) {
    std::vector<std::jthread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back([this] { work(); });
    work();
    for (std::jthread& other : others) other.join();
    if (error_) std::rethrow_exception(error_);
    return std::move(results_);
  }

 private:
  void work() {
    while (!failed_) {
      const std::size_t index = next_++;
      if (index >= plans_.size()) return;
      try {
        results_[index] =
            simulate_iteration(plans_[index], model_, options_, first_ + index).result;
        report_progress();
      } catch (const InfeasibleError& error) {
        fail(index, std::make_exception_ptr(InfeasibleError(named(index, error))));
      } catch (const InputError& error) {
        fail(index, std::make_exception_ptr(InputError(named(index, error))));
      } catch (const Error& error) {
        fail(index, std::make_exception_ptr(Error(error.code(), named(index, error))));
      } catch (...) {
        fail(index, std::current_exception());
      }
    }
  }

  std::string named(std::size_t index, const Error& error) const {
    return fmt::format("iteration {}: {}", first_ + index, error.what());
  }

  void fail(std::size_t index, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    if (error_ && error_index_ < index) return;
    error_ = std::move(error);
    error_index_ = index;
  }

  void report_progress() {
    if (!options_.on_progress) return;
    const std::lock_guard lock(mutex_);
    options_.on_progress(first_ + ++done_);
  }

  std::span<const BatchPlan> plans_;
  const CostModel& model_;
  const IterationOptions& options_;
  std::size_t first_;
  std::vector<IterationResult> results_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;  ///< of the fields below
  std::exception_ptr error_;
  std::size_t error_index_ = 0;
  std::size_t done_ = 0;
};

}  // namespace

Durations varied_durations(const Program& program, const CostModel& model,
                           const IterationOptions& options, std::uint64_t iteration) {
  Durations durations = instruction_durations(program, model, options.costing);
  vary(durations, program, model, options.variance, iteration);
  return durations;
}

SimulatedIteration simulate_program(Program program, const CostModel& model,
                                    const IterationOptions& options, std::uint64_t number) {
  SimulatedIteration iteration;
  iteration.program = std::move(program);
  const bool has_memory_model = model.memory == MemoryModel::composed;
  ReplayOptions replaying = replay_options(model, options.costing);
  if (has_memory_model) replaying.memory_model = &model;
  iteration.replay = replay(iteration.program,
                            varied_durations(iteration.program, model, options, number), replaying);
  if (has_memory_model && options.check_memory && !options.count_out_of_memory) {
    check_memory(iteration.program, iteration.replay, model);
  }
  iteration.result = measure(model, iteration.program, iteration.replay);
  iteration.result.out_of_memory =
      options.count_out_of_memory && runs_out_of_memory(iteration.program, iteration.replay, model);
  return iteration;
}

SimulatedIteration simulate_iteration(const BatchPlan& plan, const CostModel& model,
                                      const IterationOptions& options, std::uint64_t number) {
  const auto run = [&](const BatchPlan& as_run) {
    return simulate_program(lower(as_run, model, options.lowering, options.overlap), model, options,
                            number);
  };
  SimulatedIteration iteration;
  if (options.order_for_schedule) {
    BatchPlan ordered = plan;
    put_under_schedule(ordered, model, options.lowering);
    iteration = run(ordered);
  } else {
    iteration = run(plan);
  }
  iteration.result.strategy = plan.strategy;
  return iteration;
}

void RunTotals::add(const IterationResult& iteration) {
  seconds_ += iteration.time_seconds;
  tokens_ += static_cast<double>(iteration.tokens);
  flops_ += iteration.flops;
  idle_ += iteration.bubble_share * iteration.time_seconds;
  exposed_ += iteration.exposed_communication_seconds;
  times_.push_back(iteration.time_seconds);
  sums_.losses.add(iteration.losses);
  if (iteration.out_of_memory) ++out_of_memory_;
  sums_.memory_bytes = std::max(sums_.memory_bytes, iteration.memory_bytes);
  sums_.events += iteration.events;
}

RunSummary RunTotals::summary(int devices, double peak_flops) const {
  RunSummary summary = sums_;
  const std::size_t count = times_.size();
  if (count == 0) return summary;
  summary.mean_seconds = seconds_ / static_cast<double>(count);
  summary.exposed_communication_seconds = exposed_ / static_cast<double>(count);
  summary.out_of_memory_share = out_of_memory_ / static_cast<double>(count);
  std::vector<double> times = times_;
  const auto percentile = [&](std::size_t percent) {
    const std::size_t rank = (percent * count + 99) / 100;  // ⌈…⌉ without rounding errors
    const auto at = times.begin() + static_cast<std::ptrdiff_t>(rank - 1);
    std::nth_element(times.begin(), at, times.end());
    return *at;
  };
  summary.p50_seconds = percentile(50);
  summary.p95_seconds = percentile(95);
  summary.p99_seconds = percentile(99);
  if (seconds_ > 0) {
    summary.tokens_per_second = tokens_ / seconds_;
    summary.bubble_share = idle_ / seconds_;
    const double able = seconds_ * devices * peak_flops;
    summary.mfu = able > 0 ? flops_ / able : 0;
  }
  return summary;
}

std::vector<IterationResult> simulate_part(std::span<const BatchPlan> plans, const CostModel& model,
                                           const IterationOptions& options, std::size_t first) {
  if (options.threads < 1 || options.threads > kMostThreads) {
    throw InputError("threads: {}; expected a number in [1, {}]", options.threads, kMostThreads);
  }
  const auto useful = static_cast<int>(std::min<std::size_t>(options.threads, plans.size()));
  return Run(plans, model, options, first).on_threads(std::max(1, useful));
}

RunResult simulate(const std::vector<BatchPlan>& plans, const CostModel& model,
                   const IterationOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  RunResult result;
  result.iterations = simulate_part(plans, model, options, 0);
  RunTotals totals;
  for (const IterationResult& iteration : result.iterations) totals.add(iteration);
  result.summary = totals.summary(model.cluster.devices(), mean_peak_flops(model.cluster));
  result.summary.wall_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace hydraulis
