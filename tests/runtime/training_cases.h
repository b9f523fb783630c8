// Cases of batches, packs and layouts that went wrong elsewhere (numbers of the project's case
// list), each against the same batch on one device: what their tests share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "runtime/hugging_face.h"
#include "tests/runtime/training_run.h"

namespace hydraulis::test {

inline constexpr double kExact = 1e-11;

struct Measured {
  StepOutcome outcome;
  std::map<std::string, std::vector<double>> gradients;
};

inline Measured measure(Communicator& world, const DecoderSpec& decoder, const Documents& documents,
                        const BatchPlan& plan, DataType type = DataType::f64) {
  OptimizerLayout optimizer;
  optimizer.dp = world.size();
  Trainee trainee(world, type, decoder, optimizer);
  Measured measured;
  measured.outcome = trainee.accumulate(documents, plan);
  measured.gradients = trainee.gradients();
  return measured;
}

/// All documents in one micro-batch on one device.
inline BatchPlan one_pack(const Documents& documents) {
  return deal(documents, {{scheme(1, 1, 1)}, 1, {}});
}

inline std::int64_t targets_of(const Documents& documents) {
  std::int64_t targets = 0;
  for (const auto& document : documents) {
    targets += std::max<std::int64_t>(0, static_cast<std::int64_t>(document.size()) - 1);
  }
  return targets;
}

inline double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

/// Every gradient within the tolerance, relative to its own norm, or to a thousandth of the largest
/// one's where it is next to nothing (queries and keys when all that is learnt from attends to
/// itself alone).
inline void expect_same_gradients(const Measured& all, const Measured& one, double tolerance) {
  double largest = 0;
  for (const auto& [name, gradient] : one.gradients) largest = std::max(largest, norm(gradient));
  for (const auto& [name, gradient] : one.gradients) {
    std::vector<double> difference = all.gradients.at(name);
    for (std::size_t i = 0; i < gradient.size(); ++i) difference[i] -= gradient[i];
    EXPECT_LE(norm(difference), tolerance * std::max(norm(gradient), 1e-3 * largest)) << name;
  }
}

/// Loss, targets and every gradient of the plan are one device's.
inline void expect_as_alone(const DecoderSpec& decoder, const Documents& documents,
                            const BatchPlan& plan, DataType type = DataType::f64,
                            double tolerance = kExact) {
  const Measured all = measure(*mpi_process().world, decoder, documents, plan, type);
  const Measured one = measure(alone(), decoder, documents, one_pack(documents), type);
  EXPECT_EQ(all.outcome.targets, targets_of(documents));
  EXPECT_EQ(one.outcome.targets, all.outcome.targets);
  EXPECT_NEAR(all.outcome.loss, one.outcome.loss, tolerance * one.outcome.loss);
  expect_same_gradients(all, one, tolerance);
}

inline std::vector<int> read_lengths(const std::string& name) {
  std::ifstream file(std::string(HYDRAULIS_TEST_DATA "/lengths/") + name);
  std::vector<int> lengths;
  for (int length = 0; file >> length;) lengths.push_back(length);
  EXPECT_FALSE(lengths.empty()) << name;
  return lengths;
}

inline DecoderSpec config(const std::string& name) {
  return load_decoder(std::string(HYDRAULIS_TEST_DATA "/hf_configs/") + name);
}

// A case on the layouts that it is about, as far as there are ranks for them.
class OnLayouts : public testing::TestWithParam<NamedLayout> {
 protected:
  BatchPlan plan(const Documents& documents) const { return deal(documents, GetParam().layout); }
};

inline const std::vector<NamedLayout>& every_kind() {
  static const std::vector<NamedLayout> all = {
      {"single", {{scheme(1, 1, 1)}, 1, {}}},  {"tp2", {{scheme(1, 2, 1)}, 1, {}}},
      {"pp2", {{scheme(1, 1, 2)}, 1, {}}},     {"cp2", {{scheme(2, 1, 1)}, 1, {}}},
      {"tp4", {{scheme(1, 4, 1)}, 1, {}}},     {"cp4", {{scheme(4, 1, 1)}, 1, {}}},
      {"pp4", {{scheme(1, 1, 4)}, 1, {}}},     {"cp2_tp2", {{scheme(2, 2, 1)}, 1, {}}},
      {"cp2_pp2", {{scheme(2, 1, 2)}, 1, {}}}, {"cp2_tp2_pp2", {{scheme(2, 2, 2)}, 1, {}}},
      {"cp4_tp2", {{scheme(4, 2, 1)}, 1, {}}},
  };
  return all;
}

}  // namespace hydraulis::test
