// What each rank sends in a step and what it holds, against formulas written out here: a layout
// must not be quietly replaced by replication.
#include <gtest/gtest.h>

#include "tests/runtime/training_run.h"

namespace hydraulis::test {
namespace {

const std::vector<NamedLayout>& layouts() {
  constexpr Recompute kFull = Recompute::full;
  constexpr Recompute kSelective = Recompute::selective;
  static const std::vector<NamedLayout> all = {
      {"single", {{scheme(1, 1, 1)}, 2, {}}},
      {"dp2", {{scheme(1, 1, 1), scheme(1, 1, 1)}, 2, {}}},
      {"tp2", {{scheme(1, 2, 1)}, 2, {1, 2, 1}}},
      {"tp2_full", {{scheme(1, 2, 1, kFull)}, 2, {}}},
      {"tp2_selective", {{scheme(1, 2, 1, kSelective)}, 2, {}}},
      {"pp2", {{scheme(1, 1, 2)}, 3, {1, 1, 2}}},
      {"cp2", {{scheme(2, 1, 1)}, 2, {}}},
      {"cp2_full", {{scheme(2, 1, 1, kFull)}, 2, {}}},
      {"tp4", {{scheme(1, 4, 1)}, 2, {1, 4, 1}}},
      {"pp4", {{scheme(1, 1, 4)}, 3, {1, 1, 4}}},
      {"cp2_tp2", {{scheme(2, 2, 1)}, 2, {2, 2, 1}}},
      {"cp4", {{scheme(4, 1, 1)}, 1, {}}},
      {"tp2_pp2", {{scheme(1, 2, 2)}, 3, {}}},
      {"cp2_pp2", {{scheme(2, 1, 2)}, 2, {}}},
      {"tp2_pp2_dp2", {{scheme(1, 2, 2), scheme(1, 2, 2)}, 3, {2, 2, 2}}},
      {"cp2_tp2_pp2", {{scheme(2, 2, 2)}, 2, {}}},
      {"tp4_tp2_tp1_tp1",
       {{scheme(1, 4, 1), scheme(1, 2, 1), scheme(1, 1, 1), scheme(1, 1, 1)}, 2, {}}},
      {"cp2pp2_tp4_full", {{scheme(2, 1, 2, kFull), scheme(1, 4, 1)}, 2, {2, 4, 1}}},
  };
  return all;
}

const std::vector<int> kLengths = {17, 1, 9, 30, 4, 2, 21, 8, 13, 5, 26, 3};

std::int64_t up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// This rank's stage of the program and its place there.
struct Mine {
  const Stage* stage = nullptr;
  Scheme scheme;
  int tensor_rank = 0;
  std::vector<std::int64_t> rows;  ///< by micro-batch, of all tensor-parallel ranks together
};

Mine find_mine(const Program& program, int rank) {
  Mine mine;
  for (const Stage& stage : program.stages) {
    for (std::size_t i = 0; i < stage.devices.size(); ++i) {
      if (stage.devices[i] != rank) continue;
      mine.stage = &stage;
      mine.scheme = program.pipelines[stage.pipeline].scheme;
      mine.tensor_rank = static_cast<int>(i) % mine.scheme.tp;
      for (const MicroBatch& batch : program.pipelines[stage.pipeline].micro_batches) {
        std::int64_t rows = 0;
        for (const std::int64_t length : batch.lengths) {
          rows += mine.scheme.cp == 1 ? length : up(length, 2 * mine.scheme.cp) / mine.scheme.cp;
        }
        mine.rows.push_back(up(rows, mine.scheme.tp));
      }
    }
  }
  return mine;
}

/// Traffic of the forwards and backwards of one step, `element` bytes a number; parameters and
/// gradients apart.
Traffic expected_traffic(const ModelSpec& model, const Mine& mine, std::int64_t element) {
  const std::int64_t tp = mine.scheme.tp;
  const std::int64_t cp = mine.scheme.cp;
  const std::int64_t layers = mine.stage->layer_end - mine.stage->layer_begin;
  const bool again = mine.scheme.recompute == Recompute::full;
  // Sequence parallelism, per layer. Forward: gathered before attention and before the feed-forward
  // part, scattered after each. Backward: the gradient of each part's output is gathered, as is
  // each part's input once more (kept as a shard), and each part's input gradient is scattered.
  // Recomputation repeats the forward but for its last scatter.
  const std::int64_t gathers = 2 + 4 + (again ? 2 : 0);
  const std::int64_t scatters = 2 + 2 + (again ? 1 : 0);
  // Keys and values go round the ring once less than there are ranks; their gradients go all the
  // way home.
  const std::int64_t ring_steps = (cp - 1) + (cp - 1) + cp + (again ? cp - 1 : 0);
  const std::int64_t kv_heads = std::max<std::int64_t>(1, model.kv_heads / tp);
  Traffic traffic;
  for (const std::int64_t rows : mine.rows) {
    const std::int64_t hidden_bytes = rows / tp * model.hidden * element;  // one rank's shard
    traffic.all_gather += (tp - 1) * hidden_bytes * gathers * layers;
    traffic.reduce_scatter += (tp - 1) * hidden_bytes * scatters * layers;
    if (mine.stage->has_embedding) {  // rows of the vocabulary are summed; their gradient gathered
      traffic.reduce_scatter += (tp - 1) * hidden_bytes;
      traffic.all_gather += (tp - 1) * hidden_bytes;
    } else {
      traffic.point_to_point[static_cast<int>(Channel::gradients)] += hidden_bytes;
    }
    if (mine.stage->has_head) {
      traffic.all_gather += (tp - 1) * hidden_bytes * 2;  // forward, and once more for the weight
      traffic.reduce_scatter += (tp - 1) * hidden_bytes;
      traffic.all_reduce += 2 * rows * element * (tp - 1) / tp;      // the largest logit
      traffic.all_reduce += 2 * 2 * rows * element * (tp - 1) / tp;  // sum and target's logit
    } else {
      traffic.point_to_point[static_cast<int>(Channel::activations)] += hidden_bytes;
    }
    if (cp > 1) {
      traffic.point_to_point[static_cast<int>(Channel::ring)] +=
          ring_steps * layers * rows * 2 * kv_heads * model.head_dim * element;
    }
  }
  return traffic;
}

void expect_traffic(const Traffic& sent, const Traffic& expected) {
  EXPECT_EQ(sent.all_reduce, expected.all_reduce);
  EXPECT_EQ(sent.all_gather, expected.all_gather);
  EXPECT_EQ(sent.reduce_scatter, expected.reduce_scatter);
  EXPECT_EQ(sent.broadcast, expected.broadcast);
  EXPECT_EQ(sent.all_to_all, expected.all_to_all);
  constexpr const char* kChannels[] = {"activations", "gradients", "ring",
                                       "parameters",  "reduction", "other"};
  for (int channel = 0; channel < 6; ++channel) {
    EXPECT_EQ(sent.point_to_point[channel], expected.point_to_point[channel]) << kChannels[channel];
  }
}

std::vector<int> stage_layers_of(const Stage& stage, int layers) {
  std::vector<int> result;
  if (stage.has_embedding) result.push_back(kEmbeddingLayer);
  for (int layer = stage.layer_begin; layer < stage.layer_end; ++layer) result.push_back(layer);
  if (stage.has_head) result.push_back(layers);
  return result;
}

/// Elements of the planner's transfer lists that leave `rank`, and that come to it.
std::pair<std::int64_t, std::int64_t> planned_elements(const ModelSpec& model,
                                                       const Program& program, int rank) {
  GatherPlanner planner(model, program.optimizer, program.devices_per_node);
  std::int64_t leave = 0;
  std::int64_t come = 0;
  for (const Stage& stage : program.stages) {
    for (const int layer : stage_layers_of(stage, model.layers)) {
      for (const Transfer& t :
           planner.transfers(stage, program.pipelines[stage.pipeline].scheme.tp, layer)) {
        EXPECT_EQ(t.bytes, t.source == t.destination ? 0 : (t.end - t.begin) * kParameterBytes);
        if (t.source == rank) leave += t.bytes / kParameterBytes;
        if (t.destination == rank) come += t.bytes / kParameterBytes;
      }
    }
  }
  return {leave, come};
}

/// Numbers of parameters a device computes with: its share of every tensor of its layers, with its
/// vocabulary rows padded to an equal share.
std::int64_t expected_stage_elements(const ModelSpec& model, const Mine& mine) {
  const std::int64_t tp = mine.scheme.tp;
  const std::int64_t t = mine.tensor_rank;
  const std::int64_t hidden = model.hidden;
  const std::int64_t queries = model.heads / tp * model.head_dim;
  const std::int64_t keys = std::max<std::int64_t>(1, model.kv_heads / tp) * model.head_dim;
  const std::int64_t channels = model.ffn_hidden * (t + 1) / tp - model.ffn_hidden * t / tp;
  const std::int64_t vocabulary = up(model.vocab, tp) / tp * hidden;
  const std::int64_t layer =
      2 * hidden + 2 * queries * hidden + 2 * keys * hidden + 3 * channels * hidden;
  std::int64_t elements = (mine.stage->layer_end - mine.stage->layer_begin) * layer;
  if (mine.stage->has_embedding) elements += vocabulary;
  if (mine.stage->has_head) {
    elements += hidden;
    // A tied head needs a matrix of its own only where the embedding is elsewhere.
    if (!model.tied_embeddings || !mine.stage->has_embedding) elements += vocabulary;
  }
  return elements;
}

class TrafficOf : public testing::TestWithParam<NamedLayout> {
 protected:
  const Layout& layout() const { return GetParam().layout; }
  int rank() const { return mpi_process().world->rank(); }
  OptimizerLayout optimizer() const { return optimizer_for(layout(), devices_of(layout())); }
};

TEST_P(TrafficOf, AStepSendsWhatTheShapesSay) {
  Communicator& world = *mpi_process().world;
  for (const DataType type : {DataType::f64, DataType::f32}) {
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(std::string(to_string(type)) + (tied ? ", tied" : ""));
      DecoderSpec decoder = small_decoder();
      decoder.shape.tied_embeddings = tied;
      const std::int64_t element = size_of(type);
      Trainee trainee(world, type, decoder, optimizer());
      const Documents documents = random_documents(kLengths, decoder.shape.vocab, 3);
      const BatchPlan plan = deal(documents, layout());
      const Program program = trainee.program_of(plan);
      trainee.step(documents, plan, {});  // groups and layouts made
      world.reset_traffic();
      trainee.step(documents, plan, {});
      const Traffic sent = world.traffic();

      const Mine mine = find_mine(program, rank());
      ASSERT_NE(mine.stage, nullptr);
      Traffic expected = expected_traffic(decoder.shape, mine, element);
      // Loss, targets and squared norm of all ranks, three doubles.
      expected.all_reduce += 2 * 3 * 8 * (world.size() - 1) / world.size();
      const auto [leave, come] = planned_elements(decoder.shape, program, rank());
      expected.point_to_point[static_cast<int>(Channel::parameters)] = leave * element;
      // A gradient goes the way its parameter came.
      expected.point_to_point[static_cast<int>(Channel::reduction)] = come * element;
      expect_traffic(sent, expected);
    }
  }
}

TEST_P(TrafficOf, PipelineSendsAreTheProgramsInstructions) {
  const DecoderSpec decoder = small_decoder();
  Trainee trainee(*mpi_process().world, DataType::f32, decoder, optimizer());
  const Documents documents = random_documents(kLengths, decoder.shape.vocab, 3);
  const BatchPlan plan = deal(documents, layout());
  const Program program = trainee.program_of(plan);
  mpi_process().world->reset_traffic();
  trainee.accumulate(documents, plan);
  const Traffic sent = mpi_process().world->traffic();
  const Mine mine = find_mine(program, rank());
  const std::vector<MicroBatch>& batches = program.pipelines[mine.stage->pipeline].micro_batches;
  std::int64_t activations = 0;
  std::int64_t gradients = 0;
  std::int64_t padding = 0;  // rows that a device may add: 2·cp − 1 a sequence over all of them
  for (const Instruction& instruction : mine.stage->instructions) {
    const std::int64_t bytes = instruction.intra_node_bytes + instruction.inter_node_bytes;
    if (instruction.op == Op::send_activation) activations += bytes;
    if (instruction.op == Op::send_gradient) gradients += bytes;
  }
  if (mine.scheme.cp > 1) {
    for (const MicroBatch& batch : batches) {
      padding += static_cast<std::int64_t>(batch.lengths.size()) * 2 + 1;
    }
  }
  const std::int64_t scale = size_of(DataType::f32) / 2;  // instructions count bf16
  const std::int64_t slack = padding * decoder.shape.hidden * size_of(DataType::f32);
  const auto expect_between = [&](std::int64_t bytes, std::int64_t planned) {
    EXPECT_GE(bytes, planned * scale);
    EXPECT_LE(bytes, planned == 0 ? 0 : planned * scale + slack);
  };
  expect_between(sent.point_to_point[static_cast<int>(Channel::activations)], activations);
  expect_between(sent.point_to_point[static_cast<int>(Channel::gradients)], gradients);
  if (mine.scheme.pp > 1) {
    EXPECT_GT(activations + gradients, 0);
  }
}

TEST_P(TrafficOf, ARankHoldsItsShareOfParameters) {
  for (const bool tied : {false, true}) {
    DecoderSpec decoder = small_decoder();
    decoder.shape.tied_embeddings = tied;
    Trainee trainee(*mpi_process().world, DataType::f32, decoder, optimizer());
    const Documents documents = random_documents(kLengths, decoder.shape.vocab, 3);
    const BatchPlan plan = deal(documents, layout());
    trainee.evaluate(documents, plan);
    const Program program = trainee.program_of(plan);
    EXPECT_EQ(trainee.executor().stage_elements(),
              expected_stage_elements(decoder.shape, find_mine(program, rank())));
  }
}

TEST_P(TrafficOf, OptimizerShardsTogetherAreTheModelOnce) {
  const DecoderSpec decoder = small_decoder();
  Trainee trainee(*mpi_process().world, DataType::f32, decoder, optimizer());
  const std::int64_t own = trainee.shard().elements();
  std::vector<double> all(mpi_process().world->size(), 0.0);
  all[rank()] = static_cast<double>(own);
  trainee.sum_over_ranks(all);
  double sum = 0;
  for (const double elements : all) sum += elements;
  // 97·32 embedding, 32 + 97·32 head; a layer: norms 2·32, queries and output 2·32·32, keys and
  // values 2·8·32, feed-forward 3·42·32.
  const std::int64_t count = 2 * 97 * 32 + 32 + 4 * (64 + 2048 + 512 + 4032);
  EXPECT_EQ(count, parameter_count(decoder.shape));
  EXPECT_EQ(sum, static_cast<double>(count));
  EXPECT_EQ(trainee.shard().first_moments().elements(), own);
  EXPECT_EQ(trainee.shard().second_moments().elements(), own);
  EXPECT_EQ(trainee.shard().gradients().elements(), own);
  if (layout().optimizer.devices() == 1) {
    // Cut into equal ranges layer by layer: at most one element a layer apart.
    const double even = sum / mpi_process().world->size();
    EXPECT_NEAR(static_cast<double>(own), even, decoder.shape.layers + 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, TrafficOf, testing::ValuesIn(layouts_here(layouts())),
                         layout_name);

// Totals that need no transfer list.
class ParameterTraffic : public testing::TestWithParam<NamedLayout> {
 protected:
  /// Elements that all ranks together sent as parameters and as gradients in one iteration.
  std::pair<double, double> elements_sent() const {
    Communicator& world = *mpi_process().world;
    const DecoderSpec decoder = small_decoder();
    Trainee trainee(world, DataType::f32, decoder, optimizer_for(GetParam().layout, world.size()));
    const Documents documents = random_documents(kLengths, decoder.shape.vocab, 3);
    world.reset_traffic();
    trainee.accumulate(documents, deal(documents, GetParam().layout));
    const Traffic sent = world.traffic();
    std::vector<double> sums{
        static_cast<double>(sent.point_to_point[static_cast<int>(Channel::parameters)]) / 4,
        static_cast<double>(sent.point_to_point[static_cast<int>(Channel::reduction)]) / 4};
    trainee.sum_over_ranks(sums);
    return {sums[0], sums[1]};
  }
};
using WholeCopies = ParameterTraffic;
using AtHome = ParameterTraffic;

TEST_P(WholeCopies, FetchAllButTheirOwnShare) {
  // n ranks with all P parameters each, of which a rank owns its part: n·P − P.
  const double parameters = static_cast<double>(parameter_count(small_decoder().shape));
  const double expected = (mpi_process().world->size() - 1) * parameters;
  EXPECT_EQ(elements_sent(), std::pair(expected, expected));
}
INSTANTIATE_TEST_SUITE_P(
    Layouts, WholeCopies,
    testing::ValuesIn(layouts_here(
        {{"single", {{scheme(1, 1, 1)}, 1, {}}},
         {"dp2", {{scheme(1, 1, 1), scheme(1, 1, 1)}, 1, {}}},
         {"cp2", {{scheme(2, 1, 1)}, 1, {}}},
         {"cp4", {{scheme(4, 1, 1)}, 1, {}}},
         {"cp2_dp4",
          {{scheme(2, 1, 1), scheme(2, 1, 1), scheme(2, 1, 1), scheme(2, 1, 1)}, 1, {}}}})),
    layout_name);

TEST_P(AtHome, OnlyNormsMoveWhereTheLayoutsAgree) {
  // The stage's shards are the optimizer's own, but for norms, which every tensor-parallel rank
  // computes with and one rank owns each element of: 2·4 + 1 norms of 32, fetched by tp − 1 ranks.
  const double expected = (GetParam().layout.schemes[0].tp - 1) * (2 * 4 + 1) * 32;
  EXPECT_EQ(elements_sent(), std::pair(expected, expected));
}
INSTANTIATE_TEST_SUITE_P(
    Layouts, AtHome,
    testing::ValuesIn(layouts_here({{"single", {{scheme(1, 1, 1)}, 1, {}}},
                                    {"tp2", {{scheme(1, 2, 1)}, 1, {1, 2, 1}}},
                                    {"pp2", {{scheme(1, 1, 2)}, 1, {1, 1, 2}}},
                                    {"pp4", {{scheme(1, 1, 4)}, 1, {1, 1, 4}}},
                                    {"tp2_pp2", {{scheme(1, 2, 2)}, 1, {1, 2, 2}}},
                                    {"tp2_pp4", {{scheme(1, 2, 4)}, 1, {1, 2, 4}}}})),
    layout_name);

}  // namespace
}  // namespace hydraulis::test
