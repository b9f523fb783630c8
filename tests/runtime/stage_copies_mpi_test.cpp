// What stages compute with against the optimizer's masters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/training_cases.h"

namespace hydraulis::test {
namespace {

TEST(StageCopies, A29AreTheMastersBitForBitAfterFiveSteps) {
  Communicator& world = *mpi_process().world;
  const int ranks = world.size();
  const DecoderSpec decoder = small_decoder();
  Trainee trainee(world, DataType::f32, decoder, {ranks, 1, 1});
  const int tp = std::min(ranks, 4);
  const Layout layout{std::vector<Scheme>(ranks / tp, scheme(1, tp, 1)), 1, {}};
  const Documents documents = random_documents({17, 9, 30, 4}, decoder.shape.vocab, 29);
  for (int step = 0; step < 5; ++step) trainee.step(documents, layout, {});
  const auto masters = trainee.parameters();

  const Program program = trainee.program_of(deal(documents, layout));
  const int rank = world.rank();
  const Stage* stage = nullptr;
  int tensor_rank = 0;
  for (const Stage& candidate : program.stages) {
    const auto found = std::find(candidate.devices.begin(), candidate.devices.end(), rank);
    if (found == candidate.devices.end()) continue;
    stage = &candidate;
    tensor_rank = static_cast<int>(found - candidate.devices.begin()) % tp;
  }
  ASSERT_NE(stage, nullptr);
  const std::vector<PhaseTransfers> transfers = phase_transfers(decoder.shape, program, rank);
  ASSERT_EQ(transfers.size(), 1U);
  StageParameters copies(trainee.backend(), trainee.backend().type, decoder.shape, *stage, tp,
                         tensor_rank);
  StageParameters unused(trainee.backend(), trainee.backend().type, decoder.shape, *stage, tp,
                         tensor_rank);
  const auto flowing = trainee.backend().device->make_stream();
  ParameterFlow flow(trainee.backend(), trainee.shard(), transfers.front(), *flowing, &copies,
                     &unused);
  flow.start_gather();
  const auto stream = trainee.backend().device->make_stream();
  for (const int layer : copies.layers()) flow.wait_for_layer(layer, *stream);
  trainee.backend().device->synchronize(*stream);
  world.barrier();
  std::int64_t checked = 0;
  std::int64_t norms = 0;
  for (const LogicalTensor& tensor : logical_tensors(decoder.shape)) {
    ASSERT_TRUE(copies.holds(tensor.layer, tensor.kind)) << tensor.name;
    const TensorSlot* slot = copies.slots(tensor.layer).find(tensor.kind);
    std::vector<float> held(slot->end - slot->begin);
    trainee.backend().device->copy_to_host(
        held.data(), copies.address(tensor.layer, tensor.kind, slot->begin),
        static_cast<std::int64_t>(held.size() * sizeof(float)), *stream);
    trainee.backend().device->synchronize(*stream);
    for (std::size_t i = 0; i < held.size(); ++i) {
      ASSERT_EQ(held[i], static_cast<float>(masters.at(tensor.name)[slot->begin + i]))
          << tensor.name << ", element " << slot->begin + i;
    }
    checked += static_cast<std::int64_t>(held.size());
    if (tensor.shape.size() == 1) {
      EXPECT_EQ(slot->begin, 0);
      EXPECT_EQ(slot->end, tensor.elements());  // norms are whole on every rank
      ++norms;
    }
  }
  EXPECT_EQ(norms, 2 * 4 + 1);
  EXPECT_GT(checked, parameter_count(decoder.shape) / tp - 1);
}

}  // namespace
}  // namespace hydraulis::test
