#include "sim/goodput_study.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "sim/weibull.h"

namespace hydraulis {
namespace {

constexpr double kHour = 3600;
constexpr double kDay = 24 * kHour;

/// 16 nodes of which one fails every two hours and is replaced at once; checkpoints of a minute,
/// five minutes lost at a failure: the setting of Daly's formula.
TrainingJob daly_job() {
  TrainingJob job;
  job.nodes = 16;
  job.iterations = {{{10, 1000}}};
  job.fails = true;
  job.failures.node_mtbf_seconds = 16 * 2 * kHour;
  job.failures.detection_seconds = 60;
  job.failures.restart_seconds = 200;
  job.read_seconds = 40;
  job.recovery.spare_nodes = 16;
  job.checkpoints = true;
  job.interval_seconds = 900;
  job.write_seconds = 60;
  job.horizon_seconds = 100 * kDay;
  return job;
}

/// Share of the time that is useful with exponential failures of the whole job, a blocking
/// checkpoint of `cost` seconds every `interval` seconds of training and `restart` seconds lost at
/// each failure, failures while restarting included (Daly 2006, equation 20):
/// interval / (M·e^(restart/M)·(e^((interval + cost)/M) - 1)).
double daly_goodput(double interval, double cost, double restart, double mtbf) {
  return interval / (mtbf * std::exp(restart / mtbf) * std::expm1((interval + cost) / mtbf));
}

TEST(GoodputStudy, ExponentialFailuresGiveDalysFormula) {
  TrainingJob job = daly_job();
  for (const double interval : {300.0, 900.0, 3000.0}) {
    job.interval_seconds = interval;
    const Goodput got = measure_goodput(job, 24, 2);
    const double expected = daly_goodput(interval, 60, 300, 2 * kHour);
    EXPECT_LT(got.goodput.half_width, 0.005);
    EXPECT_NEAR(got.goodput.mean, expected, 1.5 * got.goodput.half_width) << interval;
    EXPECT_NEAR(got.failures.mean, 100 * 12, 4 * std::sqrt(1200.0 / 24));
    EXPECT_NEAR(got.time.whole(), job.horizon_seconds, 1);
  }
}

TEST(GoodputStudy, IterationsThatVaryGiveItToo) {
  TrainingJob job = daly_job();
  job.iterations = {{{5, 500}, {8, 900}, {17, 1600}}};
  const Goodput got = measure_goodput(job, 24, 2);
  // Half an iteration more, in the mean, until one completes the interval.
  const double expected = daly_goodput(905, 60, 300, 2 * kHour);
  EXPECT_NEAR(got.goodput.mean, expected, 1.5 * got.goodput.half_width + 1e-3);
}

TEST(GoodputStudy, TheBestIntervalIsNearYoungAndDaly) {
  TrainingJob job = daly_job();
  job.horizon_seconds = 40 * kDay;
  const IntervalSearch search = search_interval(job, 16, 2);
  const double young = young_interval(60, 2 * kHour);
  EXPECT_DOUBLE_EQ(young, std::sqrt(2 * 60 * 7200.0));
  EXPECT_GT(search.best_seconds, young / 1.35);
  EXPECT_LT(search.best_seconds, young * 1.35);
  EXPECT_GT(search.best_seconds, daly_interval(60, 2 * kHour) / 1.35);
  const auto goodput_near = [&](double interval) {
    double best = 0;
    double distance = 1e9;
    for (const IntervalTry& one : search.tries) {
      if (std::abs(one.interval_seconds - interval) > distance) continue;
      distance = std::abs(one.interval_seconds - interval);
      best = one.goodput.mean;
    }
    return best;
  };
  EXPECT_GT(goodput_near(search.best_seconds), goodput_near(young / 4) + 0.02);
  EXPECT_GT(goodput_near(search.best_seconds), goodput_near(young * 4) + 0.02);
  job.fails = false;
  EXPECT_THROW(search_interval(job, 16, 1), InputError);
}

TEST(GoodputStudy, DalysIntervalByItsOwnNumbers) {
  // C = 5 min, M = 24 h: √(2·5·1440) = 120 min; Daly: 120·(1 + √(5/2880)/3 + 5/2880/9) - 5.
  EXPECT_NEAR(young_interval(5, 1440), 120, 1e-9);
  EXPECT_NEAR(daly_interval(5, 1440), 120 * (1 + 0.0416667 / 3 + 0.00173611 / 9) - 5, 1e-4);
  EXPECT_EQ(daly_interval(10, 5), 5);
}

TEST(GoodputStudy, WithoutSparesANodeIsUpForMtbfOverMtbfAndRepair) {
  TrainingJob job = daly_job();
  job.nodes = 1;
  job.failures = {};
  job.failures.node_mtbf_seconds = 40 * kHour;
  job.read_seconds = 0;
  job.recovery.spare_nodes = 0;
  job.recovery.repair_seconds = 10 * kHour;
  job.recovery.exponential_repair = true;
  job.interval_iterations = 1;  // nothing is lost to speak of
  job.write_seconds = 0;
  job.horizon_seconds = 1000 * kDay;
  job.iterations = {{{600, 1000}}};
  Goodput got = measure_goodput(job, 16, 2);
  EXPECT_NEAR(got.time.waiting / job.horizon_seconds, 10.0 / 50,
              1.5 * got.half_widths.waiting / job.horizon_seconds);
  // A spare covers nearly all of it.
  job.recovery.spare_nodes = 3;
  got = measure_goodput(job, 16, 2);
  EXPECT_LT(got.time.waiting / job.horizon_seconds, 0.002);
}

TEST(GoodputStudy, ResultsAreTheSameOnAnyNumberOfThreads) {
  TrainingJob job = daly_job();
  job.horizon_seconds = 5 * kDay;
  const Goodput one = measure_goodput(job, 7, 1);
  const Goodput three = measure_goodput(job, 7, 3);
  EXPECT_EQ(one.goodput.mean, three.goodput.mean);
  EXPECT_EQ(one.goodput.half_width, three.goodput.half_width);
  EXPECT_EQ(one.time.lost, three.time.lost);
  EXPECT_EQ(one.events, three.events);
  EXPECT_THROW(measure_goodput(job, 1, 1), InputError);
  job.failures.node_mtbf_seconds = 1e-6;  // would run for years
  EXPECT_THROW(measure_goodput(job, 2, 1), InputError);
}

TEST(GoodputStudy, IntervalsAreStudents) {
  // 2, 4, 6, 8: mean 5, standard deviation 2.58199, standard error 1.29099, t 3.18245.
  const Estimate four = estimate({2, 4, 6, 8});
  EXPECT_DOUBLE_EQ(four.mean, 5);
  EXPECT_NEAR(four.half_width, 3.18245 * 1.290994, 1e-3);
  // 16 values, t 2.13145 for 15 degrees of freedom.
  std::vector<double> values;
  for (int i = 0; i < 16; ++i) values.push_back(i);
  EXPECT_NEAR(estimate(values).half_width, 2.13145 * std::sqrt(22.6666667 / 16), 1e-3);
}

TEST(Weibull, HasTheMeanAndShapeAskedFor) {
  EXPECT_NEAR(gamma_function(5), 24, 1e-11);
  EXPECT_NEAR(gamma_function(1.5), std::sqrt(std::numbers::pi) / 2, 1e-13);
  EXPECT_NEAR(gamma_function(11), 3628800, 1e-5);
  for (const double shape : {0.7, 1.0, 2.5}) {
    constexpr int kPoints = 2'000'000;
    double sum = 0;
    for (int i = 0; i < kPoints; ++i) sum += weibull((i + 0.5) / kPoints, 3, shape);
    EXPECT_NEAR(sum / kPoints, 3, 1e-4);
    // 1 - e^-(x/scale)^shape, so doubling -ln(1-u) multiplies x by 2^(1/shape).
    EXPECT_NEAR(weibull(0.75, 3, shape) / weibull(0.5, 3, shape), std::pow(2, 1 / shape), 1e-12);
  }
}

}  // namespace
}  // namespace hydraulis
