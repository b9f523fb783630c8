#include "sim/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/error.h"
#include "sim/parallel.h"
#include "sim/provenance.h"
#include "sim/sweep_system.h"

namespace hydraulis {
namespace {

using detail::SweepSystem;

/// Values made once for each key, by whoever asks first; others who ask meanwhile wait. What a
/// maker throws is thrown to all of them.
template <typename T>
class Cache {
 public:
  template <typename Make>
  const T& get(const std::string& key, Make make) {
    Entry* entry = nullptr;
    {
      const std::lock_guard lock(mutex_);
      entry = &entries_[key];
    }
    const std::lock_guard lock(entry->mutex);
    if (entry->error) std::rethrow_exception(entry->error);
    if (!entry->value) {
      try {
        entry->value.emplace(make());
      } catch (...) {
        entry->error = std::current_exception();
        throw;
      }
    }
    return *entry->value;
  }

 private:
  struct Entry {
    std::mutex mutex;
    std::optional<T> value;
    std::exception_ptr error;
  };
  std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

struct Caches {
  Cache<LengthTrace> traces;
  Cache<PlanResult> plans;
};

std::string model_text(const SweepSystem& system) {
  return system.request.model.empty() ? system.model.name : system.request.model;
}

/// Plans and simulates one point.
ResultRun simulate_point(const SweepSystem& system, const Sweep& sweep, Caches& caches,
                         int threads) {
  const LengthTrace& trace = caches.traces.get(
      system.trace, [&] { return detail::load_sweep_trace(system.trace, sweep.where); });
  const PlanResult& plan = caches.plans.get(system.plan_key, [&] {
    return make_plan(system.request, system.model, system.cluster, system.profile, &trace);
  });
  const BatchRun batches{trace, system.sampling, system.iterations};
  const BatchSurvey surveyed = survey(batches);
  PolicySetup setup;
  setup.model = plan.model;
  setup.set = plan.plan.set;
  setup.context = static_cast<std::int64_t>(system.request.context);
  setup.assignment.max_tokens = system.request.max_tokens;
  setup.assignment.count_parameter_traffic = !system.costing.no_communication;
  setup.assignment.traffic_overlaps = system.overlap == Overlap::on;
  setup.batches = surveyed.tuning;
  PolicyRunOptions how;
  how.iteration.threads = threads;
  how.iteration.costing = system.costing;
  how.iteration.variance = system.variance;
  how.iteration.overlap = system.overlap;
  how.keep_plan = system.keep_iteration;
  SimulatedRun simulated = run_policy(system.policy, setup, batches, how);
  ResultRun run;
  run.remark = std::move(simulated.remark);
  run.profile = fmt::format("{} ({})", plan.model.profile.name, plan.model.profile.origin);
  run.analytic = plan.model.profile.analytic;
  run.provenance =
      sources_json(sources_of(simulated.model, &system.costing, system.request.profile));
  run.summary = simulated.result.summary;
  run.summary.wall_seconds = 0;
  run.iterations = std::move(simulated.result.iterations);
  for (const Strategy& strategy : simulated.strategies) {
    run.strategies.push_back(to_string(strategy));
  }
  if (simulated.kept_plan) {
    run.kept = keep_iteration(simulate_iteration(*simulated.kept_plan, simulated.model,
                                                 how.iteration, *system.keep_iteration),
                              simulated.model, static_cast<int>(*system.keep_iteration));
  }
  return run;
}

/// A point, whatever comes of it.
ResultRun run_point(const SweepSystem& system, const SweepPoint& point, const Sweep& sweep,
                    Caches& caches, int threads) {
  ResultRun run;
  try {
    run = simulate_point(system, sweep, caches, threads);
  } catch (const InfeasibleError& error) {
    run = {};
    run.outcome = RunOutcome::infeasible;
    run.message = error.what();
  } catch (const InputError& error) {
    run = {};
    run.outcome = RunOutcome::invalid;
    run.message = error.what();
  }
  run.settings = system.settings;
  run.axis_values = point.axis_values;
  run.policy = system.policy;
  run.model = model_text(system);
  run.devices = system.cluster.devices();
  return run;
}

std::filesystem::path part_path(const std::filesystem::path& folder, std::size_t index) {
  return folder / fmt::format("point-{:06}.h5", index);
}

/// The finished point in the folder of parts, if it is this one.
std::optional<ResultRun> finished(const std::filesystem::path& path, const Json& settings) {
  std::error_code ec;
  if (!std::filesystem::is_regular_file(path, ec)) return {};
  try {
    Results part = read_results(path);
    if (part.runs.size() == 1 && part.runs[0].settings == settings) {
      return std::move(part.runs[0]);
    }
  } catch (const InputError&) {
    // Damaged, or of another version: run again.
  }
  return {};
}

/// The order in which points are run: those that are planned first, then those that share plans
/// with them, so that no thread waits for a plan that another is making.
std::vector<std::size_t> working_order(const std::vector<std::size_t>& todo,
                                       const std::vector<std::optional<SweepSystem>>& systems) {
  std::map<std::string, std::size_t> seen;
  std::vector<std::pair<std::size_t, std::size_t>> order;
  for (const std::size_t index : todo) {
    order.emplace_back(seen[systems[index]->plan_key]++, index);
  }
  std::ranges::sort(order);
  std::vector<std::size_t> result;
  for (const auto& [round, index] : order) result.push_back(index);
  return result;
}

}  // namespace

SweepRun run_sweep(const Sweep& sweep, const SweepOptions& options) {
  if (options.shards < 1 || options.shard >= options.shards) {
    throw InputError("shard {} of {}: expected one from 0 below their number", options.shard,
                     options.shards);
  }
  std::error_code ec;
  std::filesystem::create_directories(options.parts, ec);
  if (ec) throw InputError("{}: cannot make the folder: {}", options.parts.string(), ec.message());

  SweepRun run;
  run.results.name = sweep.name;
  run.results.axes = sweep.axes;
  const std::size_t count = sweep.points.size();
  std::vector<std::optional<SweepSystem>> systems(count);
  std::vector<std::optional<ResultRun>> runs(count);
  std::vector<std::size_t> todo;
  for (std::size_t i = options.shard; i < count; i += options.shards) {
    const SweepPoint& point = sweep.points[i];
    try {
      systems[i] = detail::sweep_system(sweep, point);
    } catch (const InputError& error) {
      ResultRun invalid;
      invalid.settings = point.settings;
      invalid.axis_values = point.axis_values;
      invalid.outcome = RunOutcome::invalid;
      invalid.message = error.what();
      runs[i] = std::move(invalid);
      continue;
    }
    runs[i] = finished(part_path(options.parts, i), systems[i]->settings);
    if (runs[i]) {
      runs[i]->axis_values = point.axis_values;
      ++run.resumed;
    } else {
      todo.push_back(i);
    }
  }

  Caches caches;
  std::mutex mutex;  // of the files (HDF5 is not thread-safe) and the progress
  std::size_t done = 0;
  const std::vector<std::size_t> order = working_order(todo, systems);
  const int left_over =
      order.empty() ? 1
                    : std::max(1, options.threads /
                                      static_cast<int>(std::min<std::size_t>(order.size(), 1024)));
  if (options.on_progress) options.on_progress(0, order.size());
  for_each_index(order.size(), options.threads, [&](std::size_t k) {
    const std::size_t i = order[k];
    ResultRun result = run_point(*systems[i], sweep.points[i], sweep, caches, left_over);
    const std::lock_guard lock(mutex);
    Results part;
    part.name = sweep.name;
    part.axes = sweep.axes;
    part.runs.push_back(result);
    write_results(part, part_path(options.parts, i));
    runs[i] = std::move(result);
    ++done;
    if (options.on_progress) options.on_progress(done, order.size());
  });
  run.computed = order.size();
  for (std::optional<ResultRun>& result : runs) {
    if (result) run.results.runs.push_back(std::move(*result));
  }
  return run;
}

}  // namespace hydraulis
