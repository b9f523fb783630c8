#include "planner/program/program_json.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "tests/planner/program/program_fixture.h"

namespace hydraulis {
namespace {

using testing::pipeline_plan;
using testing::scheme;

Program sample() {
  BatchPlan plan;
  Scheme uneven = scheme(1, 2, 2);
  uneven.layers = {3, 1};
  uneven.recompute = Recompute::full;
  plan.pipelines = {pipeline_plan(uneven, {16, 24}),
                    pipeline_plan(scheme(2, 1, 1), {8}, 18446744073709551615u)};
  plan.pipelines[1].micro_batches[0].padding = 5;
  CostModel cost = testing::cost_model(testing::tiny_model(), 2, 4, {2, 2, 2});
  cost.model.name = "quote \" backslash \\ tab \t \xC3\xA9";
  return lower(plan, cost);
}

void expect_equal(const Program& a, const Program& b) {
  EXPECT_EQ(a.model_name, b.model_name);
  EXPECT_EQ(std::tuple(a.layers, a.devices, a.devices_per_node),
            std::tuple(b.layers, b.devices, b.devices_per_node));
  EXPECT_EQ(std::tuple(a.optimizer.dp, a.optimizer.tp, a.optimizer.pp),
            std::tuple(b.optimizer.dp, b.optimizer.tp, b.optimizer.pp));
  ASSERT_EQ(a.pipelines.size(), b.pipelines.size());
  for (std::size_t p = 0; p < a.pipelines.size(); ++p) {
    EXPECT_EQ(a.pipelines[p].scheme, b.pipelines[p].scheme);
    EXPECT_EQ(a.pipelines[p].first_stage, b.pipelines[p].first_stage);
    ASSERT_EQ(a.pipelines[p].micro_batches.size(), b.pipelines[p].micro_batches.size());
    for (std::size_t m = 0; m < a.pipelines[p].micro_batches.size(); ++m) {
      const MicroBatch& left = a.pipelines[p].micro_batches[m];
      const MicroBatch& right = b.pipelines[p].micro_batches[m];
      EXPECT_EQ(left.sequence_ids, right.sequence_ids);
      EXPECT_EQ(left.lengths, right.lengths);
      EXPECT_EQ(left.padding, right.padding);
    }
  }
  ASSERT_EQ(a.stages.size(), b.stages.size());
  for (std::size_t s = 0; s < a.stages.size(); ++s) {
    const Stage& left = a.stages[s];
    const Stage& right = b.stages[s];
    EXPECT_EQ(left.devices, right.devices);
    EXPECT_EQ(std::tuple(left.pipeline, left.index, left.layer_begin, left.layer_end,
                         left.has_embedding, left.has_head),
              std::tuple(right.pipeline, right.index, right.layer_begin, right.layer_end,
                         right.has_embedding, right.has_head));
    ASSERT_EQ(left.instructions.size(), right.instructions.size());
    for (std::size_t i = 0; i < left.instructions.size(); ++i) {
      const Instruction& x = left.instructions[i];
      const Instruction& y = right.instructions[i];
      EXPECT_EQ(std::tuple(x.op, x.stream, x.micro_batch, x.peer, x.layer_begin, x.layer_end),
                std::tuple(y.op, y.stream, y.micro_batch, y.peer, y.layer_begin, y.layer_end));
      EXPECT_EQ(std::tuple(x.intra_node_bytes, x.inter_node_bytes, x.transfers, x.depends_on),
                std::tuple(y.intra_node_bytes, y.inter_node_bytes, y.transfers, y.depends_on));
    }
  }
}

TEST(ProgramJson, RoundTrip) {
  const Program program = sample();
  expect_equal(program, program_from_json(program_to_json(program), "test"));
  const auto path = std::filesystem::temp_directory_path() /
                    ("hydraulis_program_" + std::to_string(std::rand()) + ".json");
  write_program(program, path);
  expect_equal(program, read_program(path));
  std::filesystem::remove(path);
}

struct Fault {
  const char* pointer;
  Json value;
  const char* message;  ///< part of it
};

TEST(ProgramJson, MalformedInputNamesTheField) {
  const std::vector<Fault> faults{
      {"/format", "hydraulis plan", "'format'"},
      {"/version", 2, "'version'"},
      {"/layers", 0, "'layers'"},
      {"/layers", 1.5, "'layers'"},
      {"/devices", -1, "'devices'"},
      {"/optimizer_layout/tp", nullptr, "'optimizer_layout.tp'"},
      {"/pipelines", 3, "'pipelines'"},
      {"/pipelines/0/scheme/cp", 0, "'pipelines[0].scheme.cp'"},
      {"/pipelines/0/scheme/recompute", "some", "'pipelines[0].scheme.recompute'"},
      {"/pipelines/0/first_stage", 1, "'pipelines[0].first_stage'"},
      {"/pipelines/1/micro_batches/0/lengths", Json::array(), "lengths"},
      {"/pipelines/1/micro_batches/0/lengths/0", -8, "lengths[0]"},
      {"/pipelines/1/micro_batches/0/sequence_ids/0", -1, "sequence_ids[0]"},
      {"/stages/0/pipeline", 2, "'stages[0].pipeline'"},
      {"/stages/0/index", 1, "'stages[0]'"},
      {"/stages/0/devices", Json::array({0}), "'stages[0].devices'"},
      {"/stages/0/devices/0", 8, "devices[0]"},
      {"/stages/0/layers", Json::array({3, 1}), "'stages[0].layers'"},
      {"/stages/0/instructions/0/op", "think", "'stages[0].instructions[0].op'"},
      {"/stages/0/instructions/0/stream", 1, "'stages[0].instructions[0].stream'"},
      {"/stages/0/instructions/0/depends_on", Json::array({0}), "depends_on[0]"},
      {"/stages/0/instructions/0/peer", 3, "instructions[0].peer"},
      {"/stages/0/instructions/0/micro_batch", 2, "instructions[0].micro_batch"},
      {"/stages/0/instructions/0/transfers", -2, "instructions[0].transfers"},
      {"/stages/0/instructions/0/colour", "red", "colour"},
  };
  const Json good = program_to_json(sample());
  for (const Fault& fault : faults) {
    Json bad = good;
    bad[Json::json_pointer(fault.pointer)] = fault.value;
    try {
      program_from_json(bad, "p.json");
      ADD_FAILURE() << fault.pointer << " was accepted";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(fault.message), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find("p.json"), 0u) << error.what();
    }
  }
  for (const char* field : {"format", "stages", "pipelines", "layers"}) {
    Json bad = good;
    bad.erase(field);
    EXPECT_THROW(program_from_json(bad, "p.json"), InputError) << field;
  }
  EXPECT_THROW(program_from_json(Json::array(), "p.json"), InputError);
}

}  // namespace
}  // namespace hydraulis
