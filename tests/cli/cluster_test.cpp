// `cluster import`, `cluster collectives` and collectives as a study's choice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/command.h"

namespace hydraulis {
namespace {

TEST(ClusterCommand, AnImportedNetworkIsAClusterFile) {
  const Command command;
  command.folder().write("net.yml",
                         "topology: [Switch, Switch]\nnpus_count: [8, 8]\n"
                         "bandwidth: [300, 25]\nlatency: [3400, 14000]\n");
  const Json json =
      command.json({"cluster", "import", "net.yml", "--device", "a800", "-o", "cluster.json"});
  EXPECT_EQ(json.at("nodes"), 8);
  EXPECT_EQ(json, Json::parse(read_text_file(command.folder() / "cluster.json")));
  const Json points =
      command.json({"cluster", "collectives", "--cluster", "cluster.json", "--bytes", "1048576"});
  EXPECT_EQ(points.at("points").at(0).at("devices"), 64);
}

TEST(ClusterCommand, BadNetworksWriteNothing) {
  const Command command;
  command.folder().write("net.yml", "topology: [Switch]\nnpus_count: [8]\nbandwidth: [300]\n");
  expect_refused(command.run({"cluster", "import", "net.yml", "-o", "c.json"}), 2, "--device");
  expect_refused(command.run({"cluster", "import", "net.yml", "--device", "h100", "-o", "c.json"}),
                 2, "net.yml: field 'latency' is missing");
  expect_refused(command.run({"cluster", "import", "net.yml", "--device", "z9", "-o", "c.json"}), 2,
                 "z9");
  EXPECT_FALSE(std::filesystem::exists(command.folder() / "c.json"));
}

TEST(ClusterCommand, CollectivesSayAlgorithmProtocolAndError) {
  const Command command;
  command.folder().write("ar.csv", "size(B),time(ns)\n65536,30000\n1073741824,8000000\n");
  const Json json =
      command.json({"cluster", "collectives", "--cluster", "a100-8", "--measured", "ar.csv"});
  ASSERT_EQ(json.at("points").size(), 2U);
  const Json& large = json.at("points").at(1);
  EXPECT_EQ(large.at("protocol"), "Simple");
  // 8.4 + 14·3.4 µs and 7/4 of 1 GiB at 240 GB/s.
  EXPECT_NEAR(large.at("ring_ms").get<double>(), 0.056 + 1.75 * 1073741824 / 240e6, 1e-6);
  EXPECT_NEAR(large.at("error").get<double>(), large.at("ms").get<double>() / 8 - 1, 1e-12);
  EXPECT_TRUE(large.at("hierarchical_ms").is_null());
  expect_refused(command.run({"cluster", "collectives", "--cluster", "a100-8", "--devices", "9"}),
                 2, "--devices 9");
  expect_refused(command.run({"cluster", "collectives", "--operation", "gossip"}), 2, "gossip");
  expect_refused(command.run({"cluster", "collectives", "--bytes", "1,x"}), 2, "'x'");
}

TEST(ClusterCommand, SimulateTakesAndNamesTheCollectives) {
  const Command command;
  write_lengths(command.folder());
  ASSERT_EQ(command.run(hand_plan()).code, 0);
  const auto simulate = [&](const std::string& collectives) {
    return command.json({"simulate", "--plan", "plan.json", "--trace", "lengths.txt",
                         "--iterations", "1", "--collectives", collectives});
  };
  const Json links = simulate("links");
  const Json least = simulate("auto");
  EXPECT_NE(links.at("mean_ms"), least.at("mean_ms"));
  EXPECT_LE(least.at("mean_ms").get<double>(), simulate("ring").at("mean_ms").get<double>());
  const auto has_prior = [](const Json& json) {
    return std::ranges::any_of(json.at("provenance"), [](const Json& source) {
      return source.at("what") == "gradient reductions" && source.at("source") == "prior";
    });
  };
  EXPECT_TRUE(has_prior(least));
  EXPECT_FALSE(has_prior(links));
  EXPECT_THAT(least.at("notes").dump(),
              ::testing::HasSubstr("collectives: auto, by NCCL's public"));
  expect_refused(command.run({"simulate", "--plan", "plan.json", "--trace", "lengths.txt",
                              "--collectives", "star"}),
                 2, "--collectives");
}

TEST(ClusterCommand, AMegatronRunIsPlannedAndSimulated) {
  const Command command;
  write_lengths(command.folder());
  command.folder().write(
      "run.sh",
      "TP=8\nGPT_ARGS=(\n  --num-layers 60 --hidden-size 6656 --ffn-hidden-size 17920\n"
      "  --num-attention-heads 64 --swiglu --untie-embeddings-and-output-weights\n"
      "  --disable-bias-linear --normalization RMSNorm --vocab-size 32000\n"
      "  --make-vocab-size-divisible-by 1 --tensor-model-parallel-size $TP\n"
      "  --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 5\n"
      "  --use-distributed-optimizer --sequence-parallel --seq-length 4096\n"
      "  --micro-batch-size 1 --global-batch-size 16 --lr 1e-4 --surprise 3\n)\n"
      "torchrun --nnodes 8 --nproc_per_node 8 pretrain_gpt.py ${GPT_ARGS[@]}\n");
  const Json plan =
      command.json({"plan", "--megatron", "run.sh", "--cluster", "h100-64", "-o", "m.json"});
  EXPECT_EQ(plan.at("strategies").size(), 1U);
  EXPECT_EQ(plan.at("strategies").at(0).size(), 2U);
  EXPECT_EQ(plan.at("strategies").at(0).at(0).at("tp"), 8);
  EXPECT_THAT(plan.at("notes").dump(), ::testing::HasSubstr("left aside: --surprise"));
  const Json stored = Json::parse(read_text_file(command.folder() / "m.json"));
  EXPECT_EQ(stored.at("model"), "megatron:run.sh");
  EXPECT_EQ(stored.at("context"), 4096);
  EXPECT_EQ(stored.at("tokens_per_batch"), 65536);
  EXPECT_EQ(stored.at("schedule"), "interleaved:3");
  const std::vector<std::string> simulate = {
      "simulate",     "--trace", "lengths.txt", "--over-context", "truncate",
      "--iterations", "1",       "--policy",    "static-pack"};
  auto by_plan = simulate;
  by_plan.insert(by_plan.end(), {"--plan", "m.json"});
  auto at_once = simulate;
  at_once.insert(at_once.end(), {"--megatron", "run.sh", "--cluster", "h100-64"});
  EXPECT_EQ(command.json(by_plan).at("mean_ms"), command.json(at_once).at("mean_ms"));
  expect_refused(command.run({"plan", "--megatron", "run.sh", "--cluster", "h100-32"}), 2,
                 "8 nodes of 8 processes, but the cluster h100-32 has 32 devices");
  expect_refused(command.run({"plan", "--megatron", "run.sh", "--model", "llama-7b"}), 2,
                 "--megatron");
  by_plan.insert(by_plan.end(), {"--megatron", "run.sh"});
  expect_refused(command.run(by_plan), 2, "--megatron: the plan m.json already names it");
}

}  // namespace
}  // namespace hydraulis
