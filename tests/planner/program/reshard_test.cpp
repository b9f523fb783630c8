#include "planner/program/reshard.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/planner/program/program_fixture.h"

namespace hydraulis {
namespace {

using testing::tiny_model;

using Element = std::pair<TensorKind, std::int64_t>;

Stage stage_on(std::vector<int> devices, bool embedding = true, bool head = true) {
  Stage stage;
  stage.devices = std::move(devices);
  stage.layer_end = 4;
  stage.has_embedding = embedding;
  stage.has_head = head;
  return stage;
}

std::vector<ModelSpec> odd_models() {
  ModelSpec grouped = tiny_model();
  grouped.kv_heads = 2;
  grouped.qkv_bias = true;
  grouped.vocab = 41;  // padded inside
  ModelSpec tied = tiny_model();
  tied.tied_embeddings = true;
  tied.qk_norm = true;
  tied.ffn_hidden = 21;  // no tp divides it evenly
  return {tiny_model(), grouped, tied};
}

TEST(Reshard, TensorsHoldEveryParameterOfTheModel) {
  for (const ModelSpec& model : odd_models()) {
    const auto elements = [&](int layer) {
      std::int64_t sum = 0;
      for (const ParameterTensor& tensor : layer_tensors(model, layer)) sum += tensor.elements();
      return sum;
    };
    EXPECT_EQ(elements(kEmbeddingLayer), embedding_parameters(model));
    EXPECT_EQ(elements(0), layer_parameters(model));
    EXPECT_EQ(elements(model.layers), head_parameters(model));
  }
}

TEST(Reshard, OptimizerLayoutOwnsEveryElementOnce) {
  for (const ModelSpec& model : odd_models()) {
    for (const OptimizerLayout& layout :
         {OptimizerLayout{1, 1, 1}, {3, 4, 1}, {2, 2, 2}, {1, 16, 1}, {5, 1, 3}}) {
      for (int layer = kEmbeddingLayer; layer <= model.layers; ++layer) {
        std::map<Element, int> owners;
        std::map<int, std::int64_t> held;
        for (const Holding& h : optimizer_layout(model, layout, layer)) {
          for (std::int64_t e = h.begin; e < h.end; ++e) ++owners[{h.tensor, e}];
          held[h.device] += h.end - h.begin;
          EXPECT_LT(h.device, layout.devices());
        }
        std::size_t elements = 0;
        for (const ParameterTensor& tensor : layer_tensors(model, layer)) {
          elements += tensor.elements();
        }
        EXPECT_EQ(owners.size(), elements);
        for (const auto& [element, count] : owners) EXPECT_EQ(count, 1);
      }
    }
  }
}

TEST(Reshard, TransfersCoverEveryDestinationElementOnceFromWhoHoldsIt) {
  const std::vector<std::pair<std::vector<int>, int>> places{
      {{0}, 1}, {{5, 3}, 2}, {{8, 9, 10, 11}, 2}, {{4, 5, 6, 7, 8, 9, 10, 11}, 8}};
  for (const ModelSpec& model : odd_models()) {
    for (const OptimizerLayout& layout : {OptimizerLayout{3, 4, 1}, {2, 2, 3}, {12, 1, 1}}) {
      for (const auto& [devices, tp] : places) {
        for (int layer = kEmbeddingLayer; layer <= model.layers; ++layer) {
          const Layout from = optimizer_layout(model, layout, layer);
          const Layout to = stage_layout(model, stage_on(devices), tp, layer);
          std::set<std::tuple<int, TensorKind, std::int64_t>> held, wanted;
          for (const Holding& h : from) {
            for (std::int64_t e = h.begin; e < h.end; ++e) held.insert({h.device, h.tensor, e});
          }
          for (const Holding& h : to) {
            for (std::int64_t e = h.begin; e < h.end; ++e) wanted.insert({h.device, h.tensor, e});
          }
          std::size_t moved = 0;
          for (const Transfer& t : plan_transfers(from, to, 4, 2)) {
            EXPECT_EQ(t.bytes, t.source == t.destination ? 0 : 2 * (t.end - t.begin));
            for (std::int64_t e = t.begin; e < t.end; ++e, ++moved) {
              EXPECT_TRUE(held.contains({t.source, t.tensor, e}));
              EXPECT_TRUE(wanted.contains({t.destination, t.tensor, e}));
            }
          }
          EXPECT_EQ(moved, wanted.size());
        }
      }
    }
  }
}

TEST(Reshard, StageLayoutHoldsWholeLayerOverItsTensorGroup) {
  ModelSpec model = tiny_model();
  model.kv_heads = 2;
  model.vocab = 41;
  const Layout layout = stage_layout(model, stage_on({0, 1, 2, 3}), 4, 0);
  std::map<Element, std::set<int>> holders;
  for (const Holding& h : layout) {
    for (std::int64_t e = h.begin; e < h.end; ++e) holders[{h.tensor, e}].insert(h.device);
  }
  for (const ParameterTensor& tensor : layer_tensors(model, 0)) {
    const std::size_t copies = !tensor.split ? 4 : tensor.units < 4 ? 2 : 1;
    for (std::int64_t e = 0; e < tensor.elements(); ++e) {
      EXPECT_EQ((holders[{tensor.kind, e}].size()), copies) << to_string(tensor.kind);
    }
  }
  // 41 rows over 4 ranks: 11, 11, 11 and 8; the padding is nobody's.
  const ParameterTensor embedding = layer_tensors(model, kEmbeddingLayer)[0];
  EXPECT_EQ(tensor_shard(embedding, 4, 0), (std::pair<std::int64_t, std::int64_t>(0, 88)));
  EXPECT_EQ(tensor_shard(embedding, 4, 3), (std::pair<std::int64_t, std::int64_t>(264, 328)));
}

TEST(Reshard, TiedHeadAwayFromTheEmbeddingGathersItToo) {
  ModelSpec model = tiny_model();
  model.tied_embeddings = true;
  GatherPlanner planner(model, {4, 1, 2}, 4);
  const auto elements = [&](const Stage& stage) {
    std::int64_t sum = 0;
    for (const Transfer& t : planner.transfers(stage, 1, model.layers)) sum += t.end - t.begin;
    return sum;
  };
  EXPECT_EQ(elements(stage_on({0}, true, true)), head_parameters(model));
  EXPECT_EQ(elements(stage_on({0}, false, true)),
            head_parameters(model) + embedding_parameters(model));
}

// Summaries come from who owns what a rank needs, not from the transfers themselves: the same.
TEST(Reshard, SummariesAreThoseOfTheTransfers) {
  for (const ModelSpec& model : odd_models()) {
    for (const OptimizerLayout& layout :
         {OptimizerLayout{1, 1, 1}, {3, 4, 1}, {2, 2, 2}, {1, 16, 1}, {5, 1, 3}}) {
      for (const int devices_per_node : {1, 3, 4, 16}) {
        GatherPlanner planner(model, layout, devices_per_node);
        GatherPlanner reference(model, layout, devices_per_node);
        for (const int tp : {1, 2, 4}) {
          for (const int first : {0, 2, 7, 11}) {
            for (const bool embedding : {true, false}) {
              std::vector<int> devices;
              for (int i = 0; i < 4; ++i) devices.push_back(first + i);  // cp is 4 / tp
              const Stage stage = stage_on(devices, embedding, true);
              for (const auto& [layer, summary] : planner.stage_summaries(stage, tp)) {
                EXPECT_EQ(summary,
                          summarise(reference.transfers(stage, tp, layer), devices_per_node))
                    << "tp " << tp << " layer " << layer << " from device " << first;
              }
            }
          }
        }
      }
    }
  }
}

TEST(Reshard, PrefersOwnCopyThenTheNodeThenTheLeastLoaded) {
  const auto kind = TensorKind::gate;
  // Devices 0, 1 and 9 hold the same 100 elements; nodes of 4 devices.
  const Layout from{{0, kind, 0, 100}, {1, kind, 0, 100}, {9, kind, 0, 100}};
  const Layout to{{1, kind, 0, 100},   // has it
                  {2, kind, 0, 60},    // node of 0 and 1: 0 by number
                  {3, kind, 0, 50},    // 1 has sent nothing yet
                  {10, kind, 0, 100},  // node of 9
                  {4, kind, 0, 100},   // far from all: 1 has sent 50, 0 sent 60, 9 sent 100
                  {5, kind, 0, 10}};   // 0 with 60
  std::vector<int> sources;
  for (const Transfer& t : plan_transfers(from, to, 4, 1)) sources.push_back(t.source);
  EXPECT_EQ(sources, (std::vector<int>{1, 0, 1, 9, 1, 0}));
  EXPECT_THROW(plan_transfers(from, {{4, kind, 50, 101}}, 4, 1), std::logic_error);
}

}  // namespace
}  // namespace hydraulis
