// What a rank's device memory reaches in real training steps against what the composed memory model
// predicts for the rank's stage; each rank's line is printed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/memory_estimate.h"
#include "tests/runtime/training_run.h"

namespace hydraulis::test {
namespace {

/// Large enough that parameters and activations outweigh what does not grow with the model.
DecoderSpec medium_decoder() {
  DecoderSpec decoder;
  decoder.shape = {"medium", 8, 256, 688, 4, 2, 64, 2048, false, false, false};
  return decoder;
}

/// Trains two steps and compares the second one's peak with the fullest of the rank's stages.
void expect_as_predicted(const std::string& name, const Layout& layout, const BatchPlan& plan,
                         const Documents& documents) {
  Communicator& world = *mpi_process().world;
  Device& device = *mpi_process().device;
  const DecoderSpec decoder = medium_decoder();
  ASSERT_EQ(device.memory().allocated, 0);
  Trainee trainee(world, DataType::f32, decoder, optimizer_for(layout, world.size()));
  trainee.step(documents, plan, {});
  device.reset_peak();
  trainee.step(documents, plan, {});
  const auto measured = static_cast<double>(device.memory().peak);

  CostModel model;
  model.model = decoder.shape;
  model.cluster.nodes = 1;
  model.cluster.devices_per_node = world.size();
  model.optimizer = optimizer_for(layout, world.size());
  model.numbers = number_bytes(4);
  const Program program = trainee.program_of(plan);
  StageMemory memory;
  for (int stage = 0; stage < static_cast<int>(program.stages.size()); ++stage) {
    if (std::ranges::count(program.stages[static_cast<std::size_t>(stage)].devices, world.rank()) ==
        0) {
      continue;
    }
    const StageMemory of_stage = estimate_stage_memory(model, program, stage);
    if (of_stage.total() > memory.total()) memory = of_stage;
  }
  constexpr double mib = 1 << 20;
  const double error = memory.total() / measured - 1;
  fmt::print(
      "memory {:<16} rank {}: measured {:6.1f} MiB, predicted {:6.1f} MiB, error {:+5.1f} % "
      "(optimizer {:.1f}, parameters {:.1f}, gradients {:.1f}, activations {:.1f}, logits "
      "{:.1f}, buffers {:.1f})\n",
      name, world.rank(), measured / mib, memory.total() / mib, 100 * error, memory.optimizer / mib,
      memory.parameters / mib, memory.gradients / mib, memory.activations / mib,
      memory.logits / mib, memory.buffers / mib);
  EXPECT_LT(std::abs(error), 0.06);
}

/// As many tokens for every micro-batch of every pipeline, in documents of unequal lengths.
Documents unequal_documents(const Layout& layout) {
  const auto packs = layout.micro_batches * static_cast<int>(layout.schemes.size());
  std::vector<int> lengths;
  for (const int length : {600, 300, 124}) lengths.insert(lengths.end(), packs, length);
  return random_documents(lengths, medium_decoder().shape.vocab, 3);
}

class MemoryOf : public testing::TestWithParam<NamedLayout> {};

TEST_P(MemoryOf, ARankIsWhatTheModelPredicts) {
  const Layout& layout = GetParam().layout;
  const Documents documents = unequal_documents(layout);
  expect_as_predicted(GetParam().name, layout, deal(documents, layout), documents);
}

/// Layouts switched within the step, in either order: most tokens in the first phase or the last.
struct SwitchedLayouts {
  std::string name;
  std::vector<Layout> phases;
};
void PrintTo(const SwitchedLayouts& layouts, std::ostream* out) { *out << layouts.name; }

std::vector<SwitchedLayouts> switched_here() {
  const Layout alone2{{scheme(1, 1, 1), scheme(1, 1, 1)}, 1, {}};
  const Layout ring2{{scheme(2, 1, 1)}, 1, {}};
  const Layout tensor2{{scheme(1, 2, 1)}, 2, {}};
  const Layout stages4{{scheme(1, 1, 4)}, 2, {}};
  const Layout tensor4{{scheme(1, 2, 1), scheme(1, 2, 1)}, 1, {}};
  std::vector<SwitchedLayouts> here;
  for (const SwitchedLayouts& layouts :
       std::vector<SwitchedLayouts>{{"alone2_tensor2", {alone2, tensor2}},
                                    {"tensor2_alone2", {tensor2, alone2}},
                                    {"ring2_alone2", {ring2, alone2}},
                                    {"stages4_tensor4", {stages4, tensor4}}}) {
    if (devices_of(layouts.phases.front()) == mpi_process().world->size()) here.push_back(layouts);
  }
  return here;
}

class MemoryOfSwitches : public testing::TestWithParam<SwitchedLayouts> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MemoryOfSwitches);  // on other numbers of ranks

TEST_P(MemoryOfSwitches, NeedNoMoreThanTheirPhases) {
  const Documents documents = unequal_documents(GetParam().phases.front());
  BatchPlan plan;
  for (std::size_t phase = 0; phase < GetParam().phases.size(); ++phase) {
    for (PipelinePlan& pipeline : deal(documents, GetParam().phases[phase]).pipelines) {
      pipeline.phase = static_cast<int>(phase);
      plan.pipelines.push_back(pipeline);
    }
  }
  expect_as_predicted(GetParam().name, GetParam().phases.front(), plan, documents);
}

INSTANTIATE_TEST_SUITE_P(Layouts, MemoryOfSwitches, testing::ValuesIn(switched_here()),
                         [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Layouts, MemoryOf,
    testing::ValuesIn(layouts_here({{"single", {{scheme(1, 1, 1)}, 1, {}}},
                                    {"full", {{scheme(1, 1, 1, Recompute::full)}, 1, {}}},
                                    {"selective", {{scheme(1, 1, 1, Recompute::selective)}, 1, {}}},
                                    {"dp2", {{scheme(1, 1, 1), scheme(1, 1, 1)}, 1, {}}},
                                    {"tp2", {{scheme(1, 2, 1)}, 1, {}}},
                                    {"tp2_full", {{scheme(1, 2, 1, Recompute::full)}, 1, {}}},
                                    {"cp2", {{scheme(2, 1, 1)}, 1, {}}},
                                    {"pp2_1", {{scheme(1, 1, 2)}, 1, {}}},
                                    {"pp2_4", {{scheme(1, 1, 2)}, 4, {}}},
                                    {"tp2_pp2", {{scheme(1, 2, 2)}, 4, {}}},
                                    {"tp2_and_1_and_1",
                                     {{scheme(1, 2, 1), scheme(1, 1, 1), scheme(1, 1, 1)}, 1, {}}},
                                    {"tp2_pp2_dp2", {{scheme(1, 2, 2), scheme(1, 2, 2)}, 2, {}}}})),
    layout_name);

}  // namespace
}  // namespace hydraulis::test
