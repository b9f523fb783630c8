// Optimizers, model variants and repeatability: again every layout against one device.
#include <gtest/gtest.h>

#include <limits>

#include "tests/runtime/training_run.h"

namespace hydraulis::test {
namespace {

const std::vector<NamedLayout>& layouts() {
  static const std::vector<NamedLayout> all = {
      {"single", {{scheme(1, 1, 1)}, 2, {}}},
      {"tp2", {{scheme(1, 2, 1)}, 2, {}}},
      {"pp2", {{scheme(1, 1, 2)}, 3, {1, 1, 2}}},
      {"cp2", {{scheme(2, 1, 1)}, 2, {}}},
      {"tp4", {{scheme(1, 4, 1)}, 1, {1, 4, 1}}},
      {"cp2_pp2", {{scheme(2, 1, 2)}, 2, {}}},
      {"tp2_tp1_tp1", {{scheme(1, 2, 1), scheme(1, 1, 1), scheme(1, 1, 1)}, 2, {2, 2, 1}}},
      {"tp2pp2_tp2_pp2", {{scheme(1, 2, 2), scheme(1, 2, 1), scheme(1, 1, 2)}, 2, {4, 2, 1}}},
      {"cp2_tp2_pp2", {{scheme(2, 2, 2)}, 2, {}}},
  };
  return all;
}

const std::vector<int> kLengths = {17, 1, 9, 30, 4, 2, 21, 8, 13, 5};

struct Course {
  std::vector<double> losses;
  std::vector<double> norms;
  std::map<std::string, std::vector<double>> parameters;
};

Course train(Communicator& world, DataType type, const DecoderSpec& decoder, const Layout& layout,
             const UpdateSettings& settings, int steps) {
  Trainee trainee(world, type, decoder, optimizer_for(layout, world.size()));
  Course course;
  for (int step = 0; step < steps; ++step) {
    const Documents documents = random_documents(kLengths, decoder.shape.vocab, 40 + step % 4);
    const StepOutcome outcome = trainee.step(documents, layout, settings);
    EXPECT_TRUE(outcome.updated);
    course.losses.push_back(outcome.loss);
    course.norms.push_back(outcome.gradient_norm);
  }
  course.parameters = trainee.parameters();
  return course;
}

const Layout& one_device() {
  static const Layout layout{{scheme(1, 1, 1)}, 1, {}};
  return layout;
}

class SettingsOn : public testing::TestWithParam<NamedLayout> {
 protected:
  const Layout& layout() const { return GetParam().layout; }
  void expect_as_alone(const DecoderSpec& decoder, const UpdateSettings& settings) const {
    const Course all =
        train(*mpi_process().world, DataType::f64, decoder, layout(), settings, kSteps);
    const Course one = train(alone(), DataType::f64, decoder, one_device(), settings, kSteps);
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(all.losses[step], one.losses[step], 1e-9 * one.losses[step]) << "step " << step;
      EXPECT_NEAR(all.norms[step], one.norms[step], 1e-8 * one.norms[step]) << "step " << step;
    }
    for (const auto& [name, values] : one.parameters) {
      EXPECT_LE(relative_difference(all.parameters.at(name), values), 1e-9) << name;
    }
  }
  static constexpr int kSteps = 8;
};

TEST_P(SettingsOn, Lamb) {
  UpdateSettings settings;
  settings.optimizer = OptimizerKind::lamb;
  settings.learning_rate = 1e-2;
  expect_as_alone(small_decoder(), settings);
}

TEST_P(SettingsOn, Biases) {
  DecoderSpec decoder = small_decoder();
  decoder.shape.qkv_bias = true;
  UpdateSettings settings;
  settings.learning_rate = 1e-2;
  expect_as_alone(decoder, settings);
  // Biases start at 0 and must have learnt something.
  const Course course = train(*mpi_process().world, DataType::f64, decoder, layout(), settings, 2);
  for (const char* bias : {"q_proj", "v_proj"}) {
    const auto& values =
        course.parameters.at(std::string("model.layers.1.self_attn.") + bias + ".bias");
    for (const double value : values) EXPECT_NE(value, 0) << bias;
  }
}

TEST_P(SettingsOn, RotaryScaling) {
  DecoderSpec decoder = small_decoder();
  decoder.rotary_theta = 100;
  const double plain =
      train(*mpi_process().world, DataType::f64, decoder, layout(), {}, 1).losses[0];
  decoder.rotary_scaling.kind = RotaryScaling::Kind::linear;
  decoder.rotary_scaling.factor = 4;
  expect_as_alone(decoder, {});
  const double linear =
      train(*mpi_process().world, DataType::f64, decoder, layout(), {}, 1).losses[0];
  EXPECT_GT(std::abs(linear - plain), 1e-6);
  decoder.rotary_scaling.kind = RotaryScaling::Kind::llama3;
  decoder.rotary_scaling.factor = 8;
  decoder.rotary_scaling.low_frequency_factor = 1;
  decoder.rotary_scaling.high_frequency_factor = 4;
  decoder.rotary_scaling.original_context = 32;
  expect_as_alone(decoder, {});
  const double llama3 =
      train(*mpi_process().world, DataType::f64, decoder, layout(), {}, 1).losses[0];
  EXPECT_GT(std::abs(llama3 - plain), 1e-6);
  EXPECT_GT(std::abs(llama3 - linear), 1e-6);
}

TEST_P(SettingsOn, TheSameRunTwiceHasTheSameBits) {
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::lamb}) {
    UpdateSettings settings;
    settings.optimizer = kind;
    settings.learning_rate = 1e-2;
    Course runs[2];
    for (Course& run : runs) {
      run = train(*mpi_process().world, DataType::f32, small_decoder(), layout(), settings, 5);
    }
    EXPECT_EQ(runs[0].losses, runs[1].losses);
    EXPECT_EQ(runs[0].norms, runs[1].norms);
    EXPECT_EQ(runs[0].parameters, runs[1].parameters);
  }
}

TEST_P(SettingsOn, TheLossOfSinglesFalls) {
  UpdateSettings settings;
  settings.learning_rate = 1e-2;
  const Course course =
      train(*mpi_process().world, DataType::f32, small_decoder(), layout(), settings, 40);
  // Four batches over and over: far below the uniform guess of ln 97 ≈ 4.57, near which it starts.
  EXPECT_GT(course.losses.front(), 4);
  EXPECT_LT(course.losses.back(), 3);
}

TEST_P(SettingsOn, AnUpdateThatIsNotFiniteIsSkipped) {
  const DecoderSpec decoder = small_decoder();
  Trainee trainee(*mpi_process().world, DataType::f64, decoder,
                  optimizer_for(layout(), devices_of(layout())));
  auto weights = trainee.parameters();
  for (const LogicalTensor& tensor : logical_tensors(decoder.shape)) {
    if (tensor.name != "model.layers.2.post_attention_layernorm.weight") continue;
    for (const OwnedRange& range : trainee.shard().ranges()) {
      if (range.layer != tensor.layer || range.kind != tensor.kind) continue;
      std::vector<double> values = trainee.shard().to_host(trainee.shard().parameters(), range);
      for (double& value : values) value = std::numeric_limits<double>::infinity();
      trainee.shard().from_host(trainee.shard().parameters(), range, values);
    }
    weights[tensor.name].assign(tensor.elements(), std::numeric_limits<double>::infinity());
  }
  const Documents documents = random_documents(kLengths, decoder.shape.vocab, 1);
  const StepOutcome outcome = trainee.step(documents, layout(), {});
  EXPECT_FALSE(outcome.updated);
  EXPECT_GT(outcome.targets, 0);
  EXPECT_EQ(trainee.parameters(), weights);
}

INSTANTIATE_TEST_SUITE_P(Layouts, SettingsOn, testing::ValuesIn(layouts_here(layouts())),
                         layout_name);

}  // namespace
}  // namespace hydraulis::test
