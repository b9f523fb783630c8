#include "sim/goodput_study.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "sim/parallel.h"

namespace hydraulis {
namespace {

constexpr int kStepsPerOctave = 4;
constexpr int kOctaves = 3;
constexpr double kMostFailures = 1e8;  ///< of all replications: half a minute on one core
constexpr double kFittedAround = 4;    ///< intervals within this factor of the best

/// 0.975 quantile of Student's t: Cornish-Fisher expansion around the normal one (Abramowitz and
/// Stegun 26.7.5), within 0.2 % from 5 degrees of freedom on; below, the table.
double student_t(std::size_t freedom) {
  constexpr double kTable[] = {0, 12.7062, 4.3027, 3.1824, 2.7764};
  if (freedom < std::size(kTable)) return kTable[freedom];
  const double z = 1.959963984540054;
  const auto n = static_cast<double>(freedom);
  const double z2 = z * z;
  return z * (1 + (z2 + 1) / (4 * n) + ((5 * z2 + 16) * z2 + 3) / (96 * n * n) +
              (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * n * n * n));
}

double mean_seconds(const std::vector<IterationSample>& samples) {
  double sum = 0;
  for (const IterationSample& sample : samples) sum += sample.seconds;
  return sum / static_cast<double>(samples.size());
}

using Vector = std::array<double, 3>;
using Matrix = std::array<Vector, 3>;

double determinant(const Matrix& m) {
  return m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) -
         m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0]) +
         m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0]);
}

/// √(a/b) of the least-squares fit of waste = a/T + b·T + c, if it has a minimum.
std::optional<double> fitted_minimum(const std::vector<IntervalTry>& tries, double around) {
  Matrix products{};  // of the terms with one another
  Vector with_waste{};
  int points = 0;
  for (const IntervalTry& one : tries) {
    const double scaled = one.interval_seconds / around;
    if (scaled < 1 / kFittedAround || scaled > kFittedAround) continue;
    const Vector terms = {1 / scaled, scaled, 1};
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t j = 0; j < 3; ++j) products[i][j] += terms[i] * terms[j];
      with_waste[i] += terms[i] * (1 - one.goodput.mean);
    }
    ++points;
  }
  if (points < 4) return {};
  const auto coefficient = [&](std::size_t column) {  // Cramer's rule
    Matrix replaced = products;
    for (std::size_t i = 0; i < 3; ++i) replaced[i][column] = with_waste[i];
    return determinant(replaced) / determinant(products);
  };
  const double a = coefficient(0);
  const double b = coefficient(1);
  if (!(a > 0 && b > 0)) return {};
  return around * std::sqrt(a / b);
}

}  // namespace

Estimate estimate(const std::vector<double>& values) {
  Estimate result;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) result.mean += value / count;
  if (values.size() < 2) return result;
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.half_width = student_t(values.size() - 1) * std::sqrt(squares / (count - 1) / count);
  return result;
}

Goodput measure_goodput(const TrainingJob& job, int replications, int threads) {
  if (replications < 2) {
    throw InputError("replications: {}; expected at least 2", replications);
  }
  const double failures = job.fails ? replications * job.horizon_seconds / job_mtbf(job) : 0;
  if (failures > kMostFailures) {
    throw InputError(
        "goodput: {:.2g} failures of {} nodes in {} replications are to be simulated, expected at "
        "most {:g}: fewer days or replications, or more time between failures",
        failures, job.nodes, replications, kMostFailures);
  }
  std::vector<JobRun> runs(static_cast<std::size_t>(replications));
  for_each_index(runs.size(), threads, [&](std::size_t i) { runs[i] = run_job(job, i); });

  const auto over_runs = [&](auto&& figure) {
    std::vector<double> values;
    for (const JobRun& run : runs) values.push_back(figure(run));
    return estimate(values);
  };
  Goodput result;
  result.goodput = over_runs([](const JobRun& run) { return run.goodput; });
  result.tokens_per_second =
      over_runs([&](const JobRun& run) { return run.tokens / job.horizon_seconds; });
  result.failures = over_runs([](const JobRun& run) { return static_cast<double>(run.failures); });
  result.checkpoints =
      over_runs([](const JobRun& run) { return static_cast<double>(run.checkpoints); });
  for (double WallTime::*part : {&WallTime::useful, &WallTime::checkpoint, &WallTime::lost,
                                 &WallTime::recovery, &WallTime::degraded, &WallTime::waiting}) {
    const Estimate of_part = over_runs([&](const JobRun& run) { return run.time.*part; });
    result.time.*part = of_part.mean;
    result.half_widths.*part = of_part.half_width;
  }
  result.worst = runs[0].goodput;
  for (const JobRun& run : runs) {
    result.worst = std::min(result.worst, run.goodput);
    result.events += run.events;
  }
  return result;
}

double young_interval(double cost, double mtbf) { return std::sqrt(2 * cost * mtbf); }

double daly_interval(double cost, double mtbf) {
  if (cost >= 2 * mtbf) return mtbf;
  const double share = cost / (2 * mtbf);
  return young_interval(cost, mtbf) * (1 + std::sqrt(share) / 3 + share / 9) - cost;
}

double job_mtbf(const TrainingJob& job) { return job.failures.node_mtbf_seconds / job.nodes; }

double checkpoint_stop(const TrainingJob& job) {
  return job.asynchronous ? job.snapshot_seconds : job.write_seconds;
}

IntervalSearch search_interval(TrainingJob job, int replications, int threads) {
  const double young = job.fails ? young_interval(checkpoint_stop(job), job_mtbf(job)) : 0;
  if (!(young > 0)) {
    throw InputError(
        "goodput: the best interval is sought only where nodes fail and a checkpoint costs time; "
        "expected checkpoint.interval_seconds or interval_iterations");
  }
  job.interval_iterations = 0;
  const double shortest = mean_seconds(job.iterations.front());
  IntervalSearch search;
  const auto attempt = [&](double interval) {
    job.interval_seconds = interval;
    search.tries.push_back({interval, measure_goodput(job, replications, threads).goodput});
  };
  for (int step = -kOctaves * kStepsPerOctave; step <= kOctaves * kStepsPerOctave; ++step) {
    const double interval = young * std::exp2(static_cast<double>(step) / kStepsPerOctave);
    if (interval >= shortest) attempt(interval);
  }
  if (search.tries.empty()) attempt(shortest);
  const auto best = [&] {
    return std::max_element(search.tries.begin(), search.tries.end(),
                            [](const IntervalTry& left, const IntervalTry& right) {
                              return left.goodput.mean < right.goodput.mean;
                            })
        ->interval_seconds;
  };
  if (const auto fitted = fitted_minimum(search.tries, best()); fitted && *fitted >= shortest) {
    attempt(*fitted);
  }
  search.best_seconds = best();
  std::sort(search.tries.begin(), search.tries.end(),
            [](const IntervalTry& left, const IntervalTry& right) {
              return left.interval_seconds < right.interval_seconds;
            });
  return search;
}

}  // namespace hydraulis
