#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "costmodel/compose_operations.h"
#include "planner/program/expand.h"
#include "tests/planner/program/program_fixture.h"

namespace hydraulis {
namespace {

using testing::cost_model;
using testing::pipeline_plan;

/// What a pass of a stage asks of a device, however it is listed.
struct Demand {
  std::vector<double> products;  ///< FLOPs of each, sorted
  double attention_squares = 0;  ///< Σs² · columns
  std::vector<std::int64_t> gathers;
  std::vector<std::int64_t> scatters;
  double ring_bytes = 0;
  bool embeds = false;
};

Demand sorted(Demand demand) {
  std::sort(demand.products.begin(), demand.products.end());
  std::sort(demand.gathers.begin(), demand.gathers.end());
  std::sort(demand.scatters.begin(), demand.scatters.end());
  return demand;
}

void add(Demand& demand, const Work& work, int times = 1) {
  for (int i = 0; i < times; ++i) {
    for (const KernelUse& use : work.kernels) {
      const KernelShape& shape = use.shape;
      const auto tokens = static_cast<double>(use.tokens);
      if (shape.inputs > 0) {
        demand.products.push_back(2 * tokens * static_cast<double>(shape.inputs * shape.outputs));
      }
      if (is_attention(shape.kernel)) {
        demand.attention_squares += use.sum_squares * shape.heads * shape.head_dim;
      }
      demand.embeds |=
          shape.kernel == Kernel::embedding || shape.kernel == Kernel::embedding_backward;
    }
    for (const CollectiveUse& use : work.collectives) {
      if (use.operation == Collective::all_gather) demand.gathers.push_back(use.bytes);
      if (use.operation == Collective::reduce_scatter) demand.scatters.push_back(use.bytes);
      if (use.beside_attention) demand.ring_bytes += static_cast<double>(use.bytes) * use.count;
    }
  }
}

Demand composed(const ModelSpec& model, const Stage& stage, const Scheme& of,
                const MicroBatch& batch, WorkPass pass) {
  const BatchSize size{static_cast<double>(batch.tokens() + batch.padding), batch.sum_squares()};
  Demand demand;
  add(demand, layer_work(model, of, size, pass, 2), stage.layer_end - stage.layer_begin);
  add(demand, stage_work(model, of, size, pass));
  if (stage.has_embedding) add(demand, embedding_work(model, of, size, pass, 2));
  if (stage.has_head) add(demand, head_work(model, of, size, pass, 2));
  return sorted(demand);
}

Demand expanded(const Program& program, const ModelSpec& model, int stage, int instruction) {
  Demand demand;
  for (const Operation& o : expand(program, model, stage, instruction)) {
    // The runtime leaves out the end of a layer that it computes again: nobody needs it.
    const bool end = o.part == OperationPart::down || o.part == OperationPart::down_collective;
    if (o.pass == OperationPass::recompute && end) continue;
    if (o.kind == OperationKind::gemm) demand.products.push_back(o.flops);
    if (o.kind == OperationKind::attention) {
      const double products = o.pass == OperationPass::backward_input ? 4 : 2;
      demand.attention_squares += o.flops / products;
    }
    if (o.kind == OperationKind::all_gather) demand.gathers.push_back(o.bytes);
    if (o.kind == OperationKind::reduce_scatter) demand.scatters.push_back(o.bytes);
    if (o.kind == OperationKind::ring_exchange) demand.ring_bytes += static_cast<double>(o.bytes);
    demand.embeds |= o.kind == OperationKind::embedding;
  }
  return sorted(demand);
}

TEST(ComposedWork, IsWhatProgramsExpandTo) {
  ModelSpec model = testing::tiny_model();
  model.layers = 8;
  model.hidden = 64;
  model.ffn_hidden = 192;
  model.heads = 16;
  model.kv_heads = 8;
  model.head_dim = 4;
  model.vocab = 320;
  int compared = 0;
  for (const char* text :
       {"(1,1,1)", "(1,4,1)", "(1,1,4)", "(1,2,2)", "(2,1,2)", "(4,2,1)", "(2,2,2,recompute=full)",
        "(1,2,1,recompute=selective)", "(2,4,1,recompute=selective)", "(1,1,2,recompute=full)"}) {
    const Scheme of = parse_scheme(text, "test");
    BatchPlan plan;
    plan.pipelines = {pipeline_plan(of, {64, 128, 32})};
    plan.pipelines[0].micro_batches[1].sequence_ids.push_back(77);
    plan.pipelines[0].micro_batches[1].lengths.push_back(32);
    const Program program = lower(plan, cost_model(model, 4, 8, {8, 4, 1}));
    for (int s = 0; s < static_cast<int>(program.stages.size()); ++s) {
      const Stage& stage = program.stages[s];
      for (int i = 0; i < static_cast<int>(stage.instructions.size()); ++i) {
        const Instruction& instruction = stage.instructions[i];
        if (instruction.op != Op::forward && instruction.op != Op::backward) continue;
        const bool is_forward = instruction.op == Op::forward;
        const MicroBatch& batch =
            program.pipelines[stage.pipeline].micro_batches[instruction.micro_batch];
        const Demand mine =
            composed(model, stage, of, batch, is_forward ? WorkPass::forward : WorkPass::backward);
        const Demand theirs = expanded(program, model, s, i);
        EXPECT_EQ(mine.products, theirs.products) << text << " stage " << s;
        EXPECT_NEAR(mine.attention_squares / theirs.attention_squares, 1, 1e-12) << text;
        EXPECT_EQ(mine.gathers, theirs.gathers) << text << " stage " << s;
        EXPECT_EQ(mine.scatters, theirs.scatters) << text << " stage " << s;
        EXPECT_EQ(mine.embeds, theirs.embeds) << text;
        if (is_forward) {
          EXPECT_EQ(mine.ring_bytes, theirs.ring_bytes) << text;
        } else {
          // Keys and values need not go on after the last step; the program counts them.
          EXPECT_LE(mine.ring_bytes, theirs.ring_bytes) << text;
          EXPECT_GE(mine.ring_bytes, theirs.ring_bytes * (2 * of.cp - 1) / (2 * of.cp)) << text;
        }
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 2 * 3 * 17);
}

}  // namespace
}  // namespace hydraulis
