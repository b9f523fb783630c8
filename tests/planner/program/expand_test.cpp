#include "planner/program/expand.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"
#include "tests/planner/program/program_fixture.h"

namespace hydraulis {
namespace {

using testing::cost_model;
using testing::pipeline_plan;
using testing::scheme;

/// Divides evenly over all schemes below.
ModelSpec divisible_model() {
  ModelSpec model = testing::tiny_model();
  model.layers = 8;
  model.hidden = 64;
  model.ffn_hidden = 192;
  model.heads = 16;
  model.kv_heads = 8;
  model.head_dim = 4;
  model.vocab = 320;
  return model;
}

Program program_of(const Scheme& of, const ModelSpec& model) {
  BatchPlan plan;
  plan.pipelines = {pipeline_plan(of, {64, 128, 32})};
  plan.pipelines[0].micro_batches[1].sequence_ids.push_back(77);
  plan.pipelines[0].micro_batches[1].lengths.push_back(16);
  return lower(plan, cost_model(model, 4, 8, {8, 4, 1}));
}

struct Totals {
  double flops = 0;
  double recomputed = 0;
};

Totals totals(const Program& program, const ModelSpec& model) {
  Totals sum;
  for (int s = 0; s < static_cast<int>(program.stages.size()); ++s) {
    const auto devices = static_cast<double>(program.stages[s].devices.size());
    for (int i = 0; i < static_cast<int>(program.stages[s].instructions.size()); ++i) {
      for (const Operation& o : expand(program, model, s, i)) {
        (o.pass == OperationPass::recompute ? sum.recomputed : sum.flops) += o.flops * devices;
      }
    }
  }
  return sum;
}

TEST(Expand, ProductsAndAttentionAddUpToTheModelsFlops) {
  const ModelSpec model = divisible_model();
  const double sum_tokens = 64 + 128 + 16 + 32;
  const double sum_squares = 64. * 64 + 128. * 128 + 16. * 16 + 32. * 32;
  const double expected = training_flops(model, sum_tokens, sum_squares);
  for (const Scheme& of : {scheme(1, 1, 1), scheme(1, 8, 1), scheme(1, 4, 2), scheme(2, 2, 4),
                           scheme(4, 2, 1), scheme(1, 1, 8)}) {
    EXPECT_EQ(totals(program_of(of, model), model).flops, expected) << to_string(of);
  }
}

TEST(Expand, RecomputationRunsTheForwardAgainAndIsMarked) {
  const ModelSpec model = divisible_model();
  Scheme full = scheme(1, 2, 2);
  full.recompute = Recompute::full;
  Scheme selective = full;
  selective.recompute = Recompute::selective;
  const double tokens = 240, squares = 64. * 64 + 128. * 128 + 16. * 16 + 32. * 32;
  const double forward = training_flops(model, tokens, squares) / 3;
  const double head = 2.0 * static_cast<double>(embedding_parameters(model)) * tokens;
  const Totals all = totals(program_of(full, model), model);
  EXPECT_EQ(all.flops, 3 * forward);
  EXPECT_EQ(all.recomputed, forward - head);
  // Selective recomputation is of element-wise operations alone.
  const Program program = program_of(selective, model);
  EXPECT_EQ(totals(program, model).recomputed, 0);
  int backward = 0;
  while (program.stages[0].instructions[backward].op != Op::backward) ++backward;
  std::multiset<OperationPart> again;
  for (const Operation& o : expand(program, model, 0, backward)) {
    if (o.pass == OperationPass::recompute) again.insert(o.part);
  }
  EXPECT_EQ(again.size(), 3u * 4);  // layers of the stage
  EXPECT_EQ(again.count(OperationPart::swiglu), 4u);
}

TEST(Expand, BackwardInPartsIsTheWholeBackward) {
  const ModelSpec model = divisible_model();
  Program program = program_of(scheme(2, 4, 1), model);
  int backward = 0;
  while (program.stages[0].instructions[backward].op != Op::backward) ++backward;
  const auto ids = [&](Op op) {
    program.stages[0].instructions[backward].op = op;
    std::set<std::uint64_t> result;
    for (const Operation& o : expand(program, model, 0, backward)) {
      EXPECT_TRUE(result.insert(o.id).second) << to_string(o.part) << " " << to_string(o.pass);
    }
    return result;
  };
  std::set<std::uint64_t> parts = ids(Op::backward_input);
  const std::set<std::uint64_t> weights = ids(Op::backward_weight);
  parts.insert(weights.begin(), weights.end());
  EXPECT_EQ(parts, ids(Op::backward));
}

TEST(Expand, ForwardOfAMiddleLayerInShapes) {
  const ModelSpec model = divisible_model();
  const Program program = program_of(scheme(2, 4, 2), model);
  const Stage& stage = program.stages[1];
  int forward = 0;
  while (stage.instructions[forward].op != Op::forward) ++forward;  // 64 tokens, 32 a ring member
  std::map<OperationPart, Operation> first;
  int ring = 0, attention = 0;
  for (const Operation& o : expand(program, model, 1, forward)) {
    if (o.layer != stage.layer_begin) continue;
    first.try_emplace(o.part, o);
    ring += o.kind == OperationKind::ring_exchange;
    attention += o.kind == OperationKind::attention;
  }
  const Operation& qkv = first[OperationPart::query_key_value];
  EXPECT_EQ(std::tuple(qkv.m, qkv.n, qkv.k), std::tuple(32, (4 + 2 * 2) * 4, 64));
  EXPECT_EQ(qkv.flops, 2.0 * 32 * 32 * 64);
  const Operation& down = first[OperationPart::down];
  EXPECT_EQ(std::tuple(down.m, down.n, down.k), std::tuple(32, 64, 192 / 4));
  const Operation& gather = first[OperationPart::gate_up_collective];
  EXPECT_EQ(gather.kind, OperationKind::all_gather);
  EXPECT_EQ(gather.bytes, 32 * 64 * 2);
  EXPECT_EQ(gather.group_size, 4);
  EXPECT_EQ(ring, 1);
  EXPECT_EQ(attention, 2);
  EXPECT_EQ(first[OperationPart::attention_ring].bytes, 2 * 32 * 2 * 4 * 2);
  EXPECT_EQ(first[OperationPart::attention].sum_squares, 64. * 64 / 4);
  EXPECT_EQ(first[OperationPart::attention].lengths, std::vector<std::uint32_t>{64});
}

TEST(Expand, NoCollectivesWithoutGroups) {
  const ModelSpec model = divisible_model();
  const Program program = program_of(scheme(1, 1, 1), model);
  for (int i = 0; i < static_cast<int>(program.stages[0].instructions.size()); ++i) {
    const Op op = program.stages[0].instructions[i].op;
    if (op != Op::forward && op != Op::backward) continue;
    for (const Operation& o : expand(program, model, 0, i)) {
      EXPECT_EQ(o.stream, StreamKind::compute);
      EXPECT_EQ(o.group, OperationGroup::none);
    }
  }
}

TEST(Expand, TransfersAreOneOperationOfTheInstructionsBytes) {
  const ModelSpec model = divisible_model();
  const Program program = program_of(scheme(1, 4, 2), model);
  for (int s = 0; s < 2; ++s) {
    for (int i = 0; i < static_cast<int>(program.stages[s].instructions.size()); ++i) {
      const Instruction& what = program.stages[s].instructions[i];
      if (what.peer < 0 && what.stream != StreamKind::parameters) continue;
      const std::vector<Operation> operations = expand(program, model, s, i);
      ASSERT_EQ(operations.size(), 1u);
      EXPECT_EQ(operations[0].bytes, what.intra_node_bytes + what.inter_node_bytes);
      EXPECT_EQ(operations[0].stream, what.stream);
    }
  }
  EXPECT_THROW(expand(program, model, 2, 0), InputError);
  EXPECT_THROW(expand(program, model, 0, 100000), InputError);
}

}  // namespace
}  // namespace hydraulis
