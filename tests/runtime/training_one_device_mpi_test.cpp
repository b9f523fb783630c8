// Very many sequences, and memory over many steps, on one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/training_cases.h"

namespace hydraulis::test {
namespace {

DecoderSpec tiniest_decoder() {
  DecoderSpec decoder;
  decoder.shape = {"tiniest", 1, 4, 4, 2, 1, 2, 5, false, false, false};
  decoder.initializer_range = 0.3;
  return decoder;
}

using OneDevice = OnLayouts;
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OneDevice);

TEST_P(OneDevice, A24EightyThousandSequencesInOnePack) {
  const DecoderSpec decoder = tiniest_decoder();
  constexpr int kSequences = 80'000;
  // Sixteen different sequences over and over: the pack's mean loss and gradients are theirs.
  const Documents sixteen = random_documents(std::vector<int>(16, 16), decoder.shape.vocab, 24);
  Documents documents;
  for (int i = 0; i < kSequences; ++i) documents.push_back(sixteen[i % 16]);
  const Measured many = measure(alone(), decoder, documents, one_pack(documents), DataType::f32);
  const Measured few = measure(alone(), decoder, sixteen, one_pack(sixteen), DataType::f32);
  EXPECT_EQ(many.outcome.targets, std::int64_t{kSequences} * 15);
  EXPECT_NEAR(many.outcome.loss, few.outcome.loss, 1e-5 * few.outcome.loss);
  for (const auto& [name, gradient] : few.gradients) {
    std::vector<double> scaled = gradient;
    for (double& g : scaled) g *= kSequences / 16;
    EXPECT_LE(relative_difference(many.gradients.at(name), scaled), 1e-3) << name;
  }
}

TEST_P(OneDevice, C04MemoryIsSteadyOverLengthsThatVary) {
  const DecoderSpec decoder = tiniest_decoder();
  Trainee trainee(alone(), DataType::f32, decoder, {});
  Random random(4);
  constexpr std::int64_t kCap = 1000;
  const auto batch_near_the_cap = [&] {
    std::vector<int> lengths;
    for (std::int64_t left = kCap * 95 / 100; left > 0;) {
      const auto length = static_cast<std::int64_t>(1 + random.below(left));
      lengths.push_back(static_cast<int>(length));
      left -= length;
    }
    return random_documents(lengths, decoder.shape.vocab, random.below(1000));
  };
  Device& device = *mpi_process().device;
  std::int64_t allocated = 0;
  std::int64_t reserved = 0;
  for (int step = 0; step < 200; ++step) {
    const Documents documents = batch_near_the_cap();
    trainee.step(documents, one_pack(documents), {});
    const DeviceMemory memory = device.memory();
    if (step == 20) {
      allocated = memory.allocated;
      reserved = memory.reserved;
    } else if (step > 20) {
      ASSERT_EQ(memory.allocated, allocated) << "step " << step;
      ASSERT_EQ(memory.reserved, reserved) << "step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, OneDevice,
                         testing::ValuesIn(layouts_here({{"single", {{scheme(1, 1, 1)}, 1, {}}}})),
                         layout_name);

}  // namespace
}  // namespace hydraulis::test
