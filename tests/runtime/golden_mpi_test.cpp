// PyTorch's numbers for tiny models (experiments/pytorch/README.md), on one device and on several.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "runtime/hugging_face.h"
#include "runtime/safetensors.h"
#include "tests/runtime/training_run.h"

namespace hydraulis::test {
namespace {

struct Golden {
  Json values;
  DecoderSpec decoder;
  Documents documents;
  std::map<std::string, std::vector<double>> weights;
};

const Golden& golden(const std::string& name) {
  static std::map<std::string, Golden> read;
  if (const auto found = read.find(name); found != read.end()) return found->second;
  const std::filesystem::path folder = HYDRAULIS_TEST_DATA;
  Golden result;
  result.values = read_json_file(folder / ("golden_" + name + ".json"));
  result.decoder = parse_decoder_config(result.values["config"], name);
  result.documents = result.values["documents"].get<Documents>();
  const SafetensorsFile file(folder / ("golden_" + name + ".safetensors"));
  for (std::size_t i = 0; i < file.tensors().size(); ++i) {
    std::vector<double>& values = result.weights[file.tensors()[i].name];
    values.resize(file.tensors()[i].elements());
    file.read<double>(static_cast<std::int64_t>(i), 0, values);
  }
  return read.emplace(name, std::move(result)).first->second;
}

struct Case {
  std::string model;
  NamedLayout laid;
};

std::vector<Case> cases() {
  const std::vector<NamedLayout> layouts = {
      {"single", {{scheme(1, 1, 1)}, 3, {}}},
      {"single_recompute", {{scheme(1, 1, 1, Recompute::full)}, 1, {}}},
      {"tp2", {{scheme(1, 2, 1)}, 2, {1, 2, 1}}},
      {"cp2", {{scheme(2, 1, 1)}, 2, {}}},
      {"pp2", {{scheme(1, 1, 2)}, 3, {1, 1, 2}}},
      {"cp2_tp2", {{scheme(2, 2, 1)}, 2, {}}},
      {"tp2_pp2", {{scheme(1, 2, 2)}, 3, {}}},
      {"tp2_dp2", {{scheme(1, 2, 1), scheme(1, 2, 1)}, 2, {2, 2, 1}}},
      {"cp2_tp2_pp2", {{scheme(2, 2, 2)}, 2, {}}},
  };
  std::vector<Case> all;
  for (const char* model : {"llama_gqa", "llama_tied", "llama_scaled"}) {
    for (const NamedLayout& laid : layouts_here(layouts)) all.push_back({model, laid});
  }
  return all;
}

class GoldenValues : public testing::TestWithParam<Case> {
 protected:
  const Golden& the() const { return golden(GetParam().model); }
  const Layout& layout() const { return GetParam().laid.layout; }
  BatchPlan plan(const Documents& documents) const { return deal(documents, layout()); }
  std::unique_ptr<Trainee> trainee(DataType type) const {
    auto made = std::make_unique<Trainee>(*mpi_process().world, type, the().decoder,
                                          optimizer_for(layout(), devices_of(layout())));
    made->load(the().weights);
    return made;
  }
};

constexpr DataType kTypes[] = {DataType::f64, DataType::f32};

/// The golden values are good to about 1e-13; singles are held to the ranks' agreement (1e-4).
double tolerance(DataType type, double exact) { return type == DataType::f64 ? exact : 1e-4; }

void expect_close(double value, double expected, double relative, const std::string& what) {
  EXPECT_NEAR(value, expected, relative * std::abs(expected)) << what;
}

double norm(const std::vector<double>& values, double scale) {
  double sum = 0;
  for (const double v : values) sum += v * scale * v * scale;
  return std::sqrt(sum);
}

TEST_P(GoldenValues, LossOfEveryToken) {
  for (const DataType type : kTypes) {
    SCOPED_TRACE(to_string(type));
    const auto losses = trainee(type)->token_losses(the().documents, plan(the().documents));
    const auto expected = the().values["token_losses"].get<std::vector<std::vector<double>>>();
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t d = 0; d < expected.size(); ++d) {
      ASSERT_EQ(losses[d].size(), expected[d].size() + 1);
      EXPECT_TRUE(std::isnan(losses[d].back())) << "the last token of document " << d;
      for (std::size_t i = 0; i < expected[d].size(); ++i) {
        EXPECT_NEAR(losses[d][i], expected[d][i], tolerance(type, 1e-11))
            << "document " << d << ", token " << i;
      }
    }
  }
}

TEST_P(GoldenValues, LossAndGradients) {
  const Json& values = the().values;
  for (const DataType type : kTypes) {
    SCOPED_TRACE(to_string(type));
    const auto made = trainee(type);
    const StepOutcome outcome = made->accumulate(the().documents, plan(the().documents));
    EXPECT_EQ(outcome.targets, values["targets"].get<std::int64_t>());
    expect_close(outcome.loss, values["loss"].get<double>(), tolerance(type, 1e-12), "loss");
    const auto gradients = made->gradients();
    const double scale = 1.0 / static_cast<double>(outcome.targets);
    const auto norms = values["gradient_norms"].get<std::map<std::string, double>>();
    ASSERT_EQ(gradients.size(), norms.size());
    for (const auto& [name, expected] : norms) {
      expect_close(norm(gradients.at(name), scale), expected, tolerance(type, 1e-11), name);
    }
    for (const auto& [name, listed] :
         values["gradients"].get<std::map<std::string, std::vector<double>>>()) {
      std::vector<double> mine = gradients.at(name);
      ASSERT_EQ(mine.size(), listed.size()) << name;
      for (double& g : mine) g *= scale;
      EXPECT_LE(relative_difference(mine, listed), tolerance(type, 1e-11)) << name;
    }
  }
}

TEST_P(GoldenValues, LossWithPromptsMasked) {
  const auto prompts = the().values["masked"]["prompt_tokens"].get<std::vector<std::size_t>>();
  Documents documents = the().documents;
  documents.resize(prompts.size());
  LossMasks masks;
  for (std::size_t d = 0; d < documents.size(); ++d) {
    std::vector<std::uint8_t>& mask = masks.emplace_back(documents[d].size(), std::uint8_t{1});
    std::fill_n(mask.begin(), std::min(prompts[d], mask.size()), std::uint8_t{0});
  }
  for (const DataType type : kTypes) {
    const StepOutcome outcome = trainee(type)->evaluate(documents, plan(documents), masks);
    EXPECT_EQ(outcome.targets, the().values["masked"]["targets"].get<std::int64_t>());
    expect_close(outcome.loss, the().values["masked"]["loss"].get<double>(), tolerance(type, 1e-12),
                 to_string(type));
  }
}

TEST_P(GoldenValues, TwentyUpdatesOfAdamW) {
  const Json& training = the().values["training"];
  const Json& optimizer = training["optimizer"];
  UpdateSettings settings;
  settings.learning_rate = optimizer["learning_rate"].get<double>();
  settings.beta1 = optimizer["beta1"].get<double>();
  settings.beta2 = optimizer["beta2"].get<double>();
  settings.epsilon = optimizer["epsilon"].get<double>();
  settings.weight_decay = optimizer["weight_decay"].get<double>();
  settings.clip_norm = optimizer["clip_norm"].get<double>();
  for (const DataType type : kTypes) {
    SCOPED_TRACE(to_string(type));
    const auto made = trainee(type);
    int number = 0;
    for (const Json& step : training["steps"]) {
      SCOPED_TRACE("step " + std::to_string(number++));
      Documents documents;
      for (const auto index : step["documents"].get<std::vector<std::size_t>>()) {
        documents.push_back(the().documents[index]);
      }
      const StepOutcome outcome = made->step(documents, plan(documents), settings);
      EXPECT_TRUE(outcome.updated);
      EXPECT_EQ(outcome.targets, step["targets"].get<std::int64_t>());
      expect_close(outcome.loss, step["loss"].get<double>(), tolerance(type, 1e-9), "loss");
      expect_close(outcome.gradient_norm, step["gradient_norm"].get<double>(),
                   10 * tolerance(type, 1e-9), "gradient norm");
    }
    EXPECT_EQ(number, 20);
    const StepOutcome after = made->evaluate(the().documents, plan(the().documents));
    expect_close(after.loss, training["loss_after"].get<double>(), tolerance(type, 1e-9),
                 "loss after");
    const auto parameters = made->parameters();
    for (const auto& [name, expected] :
         training["parameter_norms_after"].get<std::map<std::string, double>>()) {
      expect_close(norm(parameters.at(name), 1), expected, tolerance(type, 1e-9), name);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(PyTorch, GoldenValues, testing::ValuesIn(cases()), [](const auto& test) {
  return test.param.model + "_" + test.param.laid.name;
});

}  // namespace
}  // namespace hydraulis::test
