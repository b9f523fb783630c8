#include "sim/iterations.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr int kMostThreads = 1024;

void check_memory(const Program& program, const Replay& replay, const CostModel& model) {
  const double limit = memory_limit_bytes(model);
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
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

IterationResult measure(const BatchPlan& plan, const CostModel& model, const Program& program,
                        const Replay& replay) {
  IterationResult result;
  result.time_seconds = replay.makespan_seconds;
  result.strategy = plan.strategy;
  result.events = replay.events;
  double sum_squares = 0;
  for (const PipelinePlan& pipeline : plan.pipelines) {
    for (const MicroBatch& batch : pipeline.micro_batches) {
      result.tokens += batch.tokens();
      sum_squares += batch.sum_squares();
    }
  }
  result.bubble_share = bubble_share(program, replay);
  result.exposed_communication_seconds = exposed_communication_seconds(program, replay);
  result.flops = training_flops(model.model, static_cast<double>(result.tokens), sum_squares);
  const double able =
      result.time_seconds * model.cluster.devices() * model.cluster.device.peak_flops;
  result.mfu = able > 0 ? result.flops / able : 0;
  for (const StageReplay& stage : replay.stages) {
    result.memory_bytes = std::max(result.memory_bytes, stage.memory_bytes);
  }
  return result;
}

/// The iterations of a run, handed out in order to any number of workers. Because they are handed
/// out in order and nothing is handed out after an error, the earliest error is always found.
class Run {
 public:
  Run(const std::vector<BatchPlan>& plans, const CostModel& model, const IterationOptions& options)
      : plans_(plans), model_(model), options_(options), results_(plans.size()) {}

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
        results_[index] = simulate_iteration(plans_[index], model_, options_).result;
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

  static std::string named(std::size_t index, const Error& error) {
    return fmt::format("iteration {}: {}", index, error.what());
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
    options_.on_progress(++done_);
  }

  const std::vector<BatchPlan>& plans_;
  const CostModel& model_;
  const IterationOptions& options_;
  std::vector<IterationResult> results_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;  ///< of the fields below
  std::exception_ptr error_;
  std::size_t error_index_ = 0;
  std::size_t done_ = 0;
};

}  // namespace

SimulatedIteration simulate_iteration(const BatchPlan& plan, const CostModel& model,
                                      const IterationOptions& options) {
  SimulatedIteration iteration;
  iteration.program = lower(plan, model, options.lowering);
  const bool has_memory_model = model.memory == MemoryModel::composed;
  ReplayOptions replay_options;
  if (has_memory_model) replay_options.memory_model = &model;
  iteration.replay =
      replay(iteration.program, instruction_durations(iteration.program, model, options.costing),
             replay_options);
  if (has_memory_model && options.check_memory) {
    check_memory(iteration.program, iteration.replay, model);
  }
  iteration.result = measure(plan, model, iteration.program, iteration.replay);
  return iteration;
}

RunSummary summarise(const std::vector<IterationResult>& iterations, int devices,
                     double peak_flops) {
  RunSummary summary;
  if (iterations.empty()) return summary;
  double seconds = 0;
  double tokens = 0;
  double flops = 0;
  double idle = 0;
  double exposed = 0;
  std::vector<double> times;
  for (const IterationResult& iteration : iterations) {
    seconds += iteration.time_seconds;
    tokens += static_cast<double>(iteration.tokens);
    flops += iteration.flops;
    idle += iteration.bubble_share * iteration.time_seconds;
    exposed += iteration.exposed_communication_seconds;
    times.push_back(iteration.time_seconds);
    summary.memory_bytes = std::max(summary.memory_bytes, iteration.memory_bytes);
    summary.events += iteration.events;
  }
  const std::size_t count = iterations.size();
  summary.mean_seconds = seconds / static_cast<double>(count);
  summary.exposed_communication_seconds = exposed / static_cast<double>(count);
  const std::size_t rank = (95 * count + 99) / 100;  // ⌈0.95·count⌉, without rounding errors
  const auto at = times.begin() + static_cast<std::ptrdiff_t>(rank - 1);
  std::nth_element(times.begin(), at, times.end());
  summary.p95_seconds = *at;
  if (seconds > 0) {
    summary.tokens_per_second = tokens / seconds;
    summary.bubble_share = idle / seconds;
    const double able = seconds * devices * peak_flops;
    summary.mfu = able > 0 ? flops / able : 0;
  }
  return summary;
}

RunResult simulate(const std::vector<BatchPlan>& plans, const CostModel& model,
                   const IterationOptions& options) {
  if (options.threads < 1 || options.threads > kMostThreads) {
    throw InputError("threads: {}; expected a number in [1, {}]", options.threads, kMostThreads);
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto useful = static_cast<int>(std::min<std::size_t>(options.threads, plans.size()));
  RunResult result;
  result.iterations = Run(plans, model, options).on_threads(std::max(1, useful));
  result.summary =
      summarise(result.iterations, model.cluster.devices(), model.cluster.device.peak_flops);
  result.summary.wall_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace hydraulis
