#include "costmodel/compose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "costmodel/build_cost_model.h"
#include "costmodel/collective_cost.h"
#include "costmodel/compose_operations.h"
#include "tests/costmodel/expect_error.h"
#include "tests/costmodel/synthetic_machine.h"

namespace hydraulis {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using testing::measure;
using testing::SyntheticMachine;
using testing::tiny_cluster;
using testing::tiny_model;

std::shared_ptr<const MeasuredOperators> operators_of(const SyntheticMachine& machine) {
  return measured_operators(measure(machine, tiny_model()), "test");
}

CostModel cost_model(const ClusterSpec& cluster, const SyntheticMachine& machine = {}) {
  return make_cost_model(tiny_model(), cluster, operator_profile(operators_of(machine)),
                         MemoryModel::composed, {cluster.devices(), 1, 1});
}

/// The machine's own laws applied to a part of a stage.
double truth(const SyntheticMachine& machine, const Work& work) {
  double seconds = 0;
  double attention = 0;
  for (const KernelUse& use : work.kernels) {
    const double one = machine.seconds(use.shape, static_cast<double>(use.tokens), use.sum_squares);
    seconds += one;
    if (is_attention(use.shape.kernel)) attention += one;
  }
  double beside = 0;
  for (const CollectiveUse& use : work.collectives) {
    const double one =
        use.count * machine.seconds(use.operation, use.ranks, static_cast<double>(use.bytes));
    (use.beside_attention ? beside : seconds) += one;
  }
  return seconds + std::max(0.0, beside - attention);
}

double stage_truth(const SyntheticMachine& machine, const Scheme& scheme, int stage,
                   const BatchSize& batch, WorkPass pass) {
  const ModelSpec model = tiny_model();
  const int layers = stage_layers(scheme, model.layers)[static_cast<std::size_t>(stage)];
  double seconds = layers * truth(machine, layer_work(model, scheme, batch, pass, 4)) +
                   truth(machine, stage_work(model, scheme, batch, pass));
  if (stage == 0) seconds += truth(machine, embedding_work(model, scheme, batch, pass, 4));
  if (stage == scheme.pp - 1) seconds += truth(machine, head_work(model, scheme, batch, pass, 4));
  return seconds;
}

TEST(Compose, GivesTheTimesOfEveryStageOfEveryScheme) {
  const SyntheticMachine machine;
  const CostModel model = cost_model(tiny_cluster(1, 4), machine);
  int checked = 0;
  double sum_of_errors = 0;
  for (const Scheme& scheme : known_schemes(model)) {
    for (int stage = 0; stage < scheme.pp; ++stage) {
      const StageCost whole = stage_cost(model, scheme, stage).value();
      const StageCost forward = forward_cost(model, scheme, stage).value();
      for (const double tokens : {512.0, 1024.0, 3000.0}) {
        for (const double length : {64.0, 256.0, tokens}) {
          const BatchSize batch{tokens, tokens * length};
          const double f = stage_truth(machine, scheme, stage, batch, WorkPass::forward);
          const double b = stage_truth(machine, scheme, stage, batch, WorkPass::backward);
          const double error = whole.of(batch.sum_squares, tokens) / (f + b) - 1;
          EXPECT_NEAR(error, 0, 0.07) << to_string(scheme) << " stage " << stage << ", " << tokens;
          EXPECT_NEAR(forward.of(batch.sum_squares, tokens) / f, 1, 0.10) << to_string(scheme);
          sum_of_errors += std::abs(error);
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 300);
  EXPECT_LT(sum_of_errors / checked, 0.02);
}

TEST(Compose, KnowsEverySchemeThatTheClusterHolds) {
  const CostModel model = cost_model(tiny_cluster(1, 4));
  const std::vector<Scheme> schemes = known_schemes(model);
  for (const char* text : {"(1,1,1)", "(4,1,1)", "(1,4,1)", "(1,1,4)", "(2,2,1)", "(1,1,3)",
                           "(1,2,2,recompute=full)", "(2,1,2,recompute=selective)"}) {
    EXPECT_THAT(schemes, Contains(parse_scheme(text, "test"))) << text;
  }
  for (const Scheme& scheme : schemes) EXPECT_LE(scheme.devices(), 4);
}

TEST(Compose, FirstAndLastStagesCarryTheirEnds) {
  const CostModel model = cost_model(tiny_cluster(1, 4));
  const Scheme scheme = parse_scheme("(1,1,3)", "test");
  const auto seconds = [&](int stage) {
    return stage_cost(model, scheme, stage).value().of(1024 * 256.0, 1024);
  };
  EXPECT_GT(seconds(0), seconds(1));
  EXPECT_GT(seconds(2), seconds(0)) << "a head of 2,048 columns costs more than the embedding";
  // The head's three products on the machine's peak.
  EXPECT_NEAR((seconds(2) - seconds(1)) / (6.0 * 256 * 2048 * 1024 / 50e9), 1.12, 0.12);
  // The row for people and for schedules without stages is the slowest.
  for (const SchemeCoefficients& row : model.profile.schemes) {
    if (row.scheme == scheme) {
      EXPECT_NEAR(row.b, stage_cost(model, scheme, 2)->b, 1e-15);
    }
  }
}

TEST(Compose, UnevenStagesHaveTheirOwnLayers) {
  const CostModel model = cost_model(tiny_cluster(1, 4));
  const StageCost three = stage_cost(model, parse_scheme("(1,1,2)", "test"), 0).value();
  const StageCost one = stage_cost(model, parse_scheme("(1,1,2,layers=1+5)", "test"), 0).value();
  const StageCost two = stage_cost(model, parse_scheme("(1,1,2,layers=2+4)", "test"), 0).value();
  EXPECT_NEAR(two.b - one.b, three.b - two.b, 1e-15);
  EXPECT_GT(one.b, 0.2 * three.b);
}

TEST(Compose, RecomputationAddsToTheBackwardAlone) {
  const CostModel model = cost_model(tiny_cluster(1, 4));
  const auto pass = [&](const char* scheme, bool forward) {
    const Scheme parsed = parse_scheme(scheme, "test");
    const double f = forward_cost(model, parsed, 0)->of(1024 * 256.0, 1024);
    return forward ? f : stage_cost(model, parsed, 0)->of(1024 * 256.0, 1024) - f;
  };
  const char* none = "(1,1,1)";
  const char* full = "(1,1,1,recompute=full)";
  const char* some = "(1,1,1,recompute=selective)";
  EXPECT_NEAR(pass(none, true), pass(full, true), 1e-12);
  EXPECT_NEAR(pass(none, true), pass(some, true), 1e-12);
  EXPECT_GT(pass(some, false), pass(none, false));
  EXPECT_GT(pass(full, false), pass(some, false));
  EXPECT_LT(pass(full, false), pass(none, false) + pass(none, true));
}

TEST(Compose, SaysWhatItDoesNotKnow) {
  OperatorProfile profile = measure(SyntheticMachine(), tiny_model());
  profile.collectives.clear();
  profile.excluded = {{"attention of 65536 tokens", "memory"}};
  const CostModel model = make_cost_model(tiny_model(), tiny_cluster(2, 4),
                                          operator_profile(measured_operators(profile, "test")),
                                          MemoryModel::composed, {8, 1, 1});
  const std::vector<std::string>& limits = model.profile.limits;
  EXPECT_THAT(limits, Contains(HasSubstr("attention of 65536 tokens: memory")));
  EXPECT_THAT(limits, Contains(HasSubstr("the cluster's links")));
  EXPECT_THAT(limits, Contains(HasSubstr("measured up to 4096 tokens a device")));
  EXPECT_FALSE(model.profile.analytic);
  EXPECT_EQ(beyond_measurements(model, 4096, 4096), "");
  EXPECT_THAT(beyond_measurements(model, 4096, 32768),
              HasSubstr("32768 tokens, 4096 were measured"));
  EXPECT_THAT(beyond_measurements(model, 9000, 64), HasSubstr("9000 tokens a device"));
  // Case B11 through the cost model: eight times the tokens of one sequence.
  const StageCost cost = stage_cost(model, parse_scheme("(1,1,1)", "test"), 0).value();
  const double ratio = cost.of(32768.0 * 32768, 32768) / cost.of(4096.0 * 4096, 4096);
  EXPECT_GT(ratio, 8);
  EXPECT_LT(ratio, 64);
  EXPECT_NEAR((cost.of(32768.0 * 32768, 32768) - cost.of(0, 32768)) / (cost.a * 4096 * 4096), 64,
              1e-6);
}

TEST(Compose, RefusesAProfileWithoutAttention) {
  OperatorProfile profile = measure(SyntheticMachine(), tiny_model());
  std::erase_if(profile.kernels,
                [](const KernelSample& sample) { return is_attention(sample.shape.kernel); });
  const Profile loaded = operator_profile(measured_operators(profile, "test"));
  expect_error<InputError>(
      [&] { return compose_profile(loaded.operators, tiny_model(), tiny_cluster(1, 1)); },
      {"attention"});
}

/// A device with twice the peak and four times the bandwidth, by its data sheet.
TEST(Compose, CarriesOverToAnotherDeviceByDataSheet) {
  ClusterSpec other = tiny_cluster(1, 4);
  other.device.name = "faster";
  other.device.peak_flops *= 2;
  other.device.memory_bandwidth_bytes_per_second *= 4;
  const CostModel here = cost_model(tiny_cluster(1, 4));
  const CostModel there = cost_model(other);
  EXPECT_FALSE(here.profile.analytic);
  EXPECT_TRUE(there.profile.analytic);
  EXPECT_EQ(there.profile.device, "faster");
  EXPECT_THAT(there.profile.limits, Contains(HasSubstr("carried over to faster")));
  const Scheme scheme = parse_scheme("(1,1,1)", "test");
  const double ratio = stage_cost(here, scheme, 0)->of(1024.0 * 1024, 1024) /
                       stage_cost(there, scheme, 0)->of(1024.0 * 1024, 1024);
  EXPECT_GT(ratio, 2);
  EXPECT_LT(ratio, 4);
  EXPECT_NEAR(stage_cost(here, scheme, 0)->a / stage_cost(there, scheme, 0)->a, 2, 0.02);
}

TEST(Compose, WhatNobodyMeasuredOnADeviceThatNcclKnowsIsTimedByItsTable) {
  ClusterSpec cluster = tiny_cluster(1, 4);
  cluster.device.name = "h100";
  cluster.cores_per_node = 0;
  const CostModel model = cost_model(cluster);
  EXPECT_THAT(model.profile.limits, Contains(HasSubstr("NCCL's cost table")));
  const CollectiveCost send =
      collective_cost(Collective::send, even_placement(2, 1), 1e6, collective_network(cluster));
  EXPECT_NEAR(message_seconds(*model.profile.operators, cluster, 1, 1e6, false, {}), send.seconds(),
              1e-15);
}

TEST(Compose, TrafficFollowsTheMeasuredCurves) {
  const SyntheticMachine machine;
  const auto operators = operators_of(machine);
  const ClusterSpec cluster = tiny_cluster(1, 4);
  EXPECT_NEAR(message_seconds(*operators, cluster, 3, 3e6, false, {}), 3 * (5e-6 + 1e6 / 4e9),
              1e-8);
  EXPECT_NEAR(barrier_seconds(*operators, cluster, 4, {}), 6 * 5e-6, 1e-7);
  EXPECT_EQ(barrier_seconds(*operators, cluster, 1, {}), 0);
  KernelShape adamw;
  adamw.kernel = Kernel::adamw;
  adamw.width = 1;
  EXPECT_NEAR(optimizer_seconds(*operators, 1e6) / machine.seconds(adamw, 1e6, 0), 1, 0.02);
  EXPECT_GT(add_seconds(*operators, 1e6), 0);
  EXPECT_GT(sum_squares_seconds(*operators, 1e6), 0);
  EXPECT_GT(copy_seconds(*operators, 1e6), 0);
}

TEST(Compose, KernelShapesAreThoseOfEveryPartOnce) {
  const ModelSpec model = tiny_model();
  const std::vector<KernelShape> shapes = kernel_shapes(model, 2);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(shapes[i] == shapes[j]);
  }
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    for (const WorkPass pass : {WorkPass::forward, WorkPass::backward}) {
      Scheme scheme;
      scheme.tp = 2;
      scheme.recompute = recompute;
      for (const Work& work : {layer_work(model, scheme, {64, 4096}, pass, 4),
                               embedding_work(model, scheme, {64, 4096}, pass, 4),
                               head_work(model, scheme, {64, 4096}, pass, 4)}) {
        for (const KernelUse& use : work.kernels) EXPECT_THAT(shapes, Contains(use.shape));
      }
    }
  }
}

// Memory goes by the width that was measured: what is planned for a machine that trains in single
// precision holds there.
TEST(Compose, NumbersAreAsWideAsMeasured) {
  const ClusterSpec cluster = tiny_cluster(1, 4);
  for (const char* type : {"f32", "f64"}) {
    OperatorProfile profile = measure(SyntheticMachine(), tiny_model());
    for (KernelSample& sample : profile.kernels) sample.data_type = type;
    const CostModel model = make_cost_model(tiny_model(), cluster,
                                            operator_profile(measured_operators(profile, "p.h5")),
                                            MemoryModel::composed, {4, 1, 1});
    const double bytes = std::string(type) == "f64" ? 8 : 4;
    EXPECT_EQ(model.numbers.activation, bytes);
    EXPECT_EQ(model.numbers.parameter, bytes);
    EXPECT_EQ(model.numbers.optimizer, 4 * bytes);
  }
}

// What a measured run was seen to take multiplies the times of its scheme, and the general factor
// those of the others.
TEST(Compose, CorrectionsMultiplyStageTimes) {
  const ClusterSpec cluster = tiny_cluster(1, 4);
  OperatorProfile profile = measure(SyntheticMachine(), tiny_model());
  const auto model_of = [&] {
    return make_cost_model(tiny_model(), cluster,
                           operator_profile(measured_operators(profile, "p.h5")),
                           MemoryModel::composed, {4, 1, 1});
  };
  const CostModel before = model_of();
  profile.corrections = {{CorrectedTime::forward, "(1,2,1)", 1.5},
                         {CorrectedTime::backward, "", 3}};
  const CostModel after = model_of();
  for (const Scheme& scheme : known_schemes(before)) {
    const double forward = forward_cost(before, scheme, 0)->of(1e6, 1e3);
    const double backward = stage_cost(before, scheme, 0)->of(1e6, 1e3) - forward;
    const double factor = to_string(scheme) == "(1,2,1)" ? 1.5 : 1;
    const double corrected = forward_cost(after, scheme, 0)->of(1e6, 1e3);
    EXPECT_NEAR(corrected, factor * forward, 1e-12 * forward) << to_string(scheme);
    EXPECT_NEAR(stage_cost(after, scheme, 0)->of(1e6, 1e3) - corrected, 3 * backward,
                1e-11 * backward)
        << to_string(scheme);
  }
}

}  // namespace
}  // namespace hydraulis
