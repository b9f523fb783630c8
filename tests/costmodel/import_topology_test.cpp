#include "costmodel/import_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace hydraulis {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

ClusterSpec parse(const std::string& text) {
  return parse_topology(text, "net.yml", load_cluster("h100-8").device);
}

std::string problem(const std::string& text) {
  try {
    parse(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(ImportTopology, AstraOfThreeDimensions) {
  const ClusterSpec cluster = parse(
      "# a comment\n"
      "topology: [ FullyConnected, Switch, Switch ]  # kinds\n"
      "npus_count: [ 4, 8, 2 ]\n"
      "bandwidth: [ 50.0, 40, 10.0 ] # GB/s\n"
      "latency: [ 500.0, 700, 2000 ]\n"
      "extra: 3\n");
  EXPECT_EQ(cluster.devices_per_node, 4);
  EXPECT_EQ(cluster.nodes, 16);
  EXPECT_NEAR(cluster.intra_node.bandwidth_bytes_per_second, 150e9, 1) << "three links of 50";
  EXPECT_NEAR(cluster.intra_node.latency_seconds, 500e-9, 1e-15);
  EXPECT_NEAR(cluster.inter_node.bandwidth_bytes_per_second, 40e9, 1);
  ASSERT_EQ(cluster.levels.size(), 1U);
  EXPECT_EQ(cluster.levels[0].nodes, 8);
  EXPECT_NEAR(cluster.levels[0].oversubscription, 4, 1e-12);
  EXPECT_NEAR(cluster.levels[0].latency_seconds, 1300e-9, 1e-15);
  EXPECT_EQ(cluster.device.name, "h100");
  EXPECT_EQ(cluster.origin, "imported from net.yml");
  EXPECT_THAT(cluster.notes, Contains(HasSubstr("'extra'")));
}

TEST(ImportTopology, AstraOfOneDimensionIsANodeAndListsMayStandBelow) {
  const ClusterSpec cluster =
      parse("topology:\n  - Ring\nnpus_count:\n  - 8\nbandwidth: [50]\nlatency:\n- 10\n");
  EXPECT_EQ(cluster.nodes, 1);
  EXPECT_EQ(cluster.devices_per_node, 8);
  EXPECT_NEAR(cluster.intra_node.bandwidth_bytes_per_second, 50e9, 1);
  EXPECT_NEAR(cluster.intra_node.latency_seconds, 10e-9, 1e-18);
}

TEST(ImportTopology, AstraFilesThatAreWrongAreRefused) {
  const std::string rest = "bandwidth: [50]\nlatency: [10]\n";
  EXPECT_THAT(problem(""), HasSubstr("'topology' is missing"));
  EXPECT_THAT(problem("topology: [Ring]\n" + rest), HasSubstr("'npus_count' is missing"));
  EXPECT_THAT(problem("topology: [Torus]\nnpus_count: [8]\n" + rest), HasSubstr("'Torus'"));
  EXPECT_THAT(problem("topology: [Ring]\nnpus_count: [8, 2]\n" + rest),
              HasSubstr("2 values, expected 1"));
  EXPECT_THAT(problem("topology: [Ring]\nnpus_count: [2.5]\n" + rest), HasSubstr("whole numbers"));
  EXPECT_THAT(problem("topology: [Ring]\nnpus_count: [99999999999]\n" + rest),
              HasSubstr("at most"));
  EXPECT_THAT(problem("topology: [Ring]\nnpus_count: [8]\nbandwidth: [-1]\nlatency: [1]\n"),
              HasSubstr("line 3, field 'bandwidth': '-1'"));
  EXPECT_THAT(problem("topology: [Ring]\nnpus_count: [8]\nbandwidth: [fast]\nlatency: [1]\n"),
              HasSubstr("'fast'"));
  EXPECT_THAT(problem("topology: [Ring,\n Ring]\n"), HasSubstr("list on one line"));
  EXPECT_THAT(problem("topology: [Ring]\ntopology: [Ring]\n"), HasSubstr("stands twice"));
  EXPECT_THAT(problem("- 3\n"), HasSubstr("an entry of no list"));
}

/// 16 GPUs in 2 servers with a switch inside each; `outer` switches on rails, GPU i of a server on
/// switch i of the outer ones; two spines.
std::string simai(int nodes, int inner, int outer, int spines) {
  const int gpus = nodes - inner - outer - spines;
  std::string lines;
  int count = 0;
  const auto link = [&](int a, int b, const char* speed, const char* latency) {
    lines += std::to_string(a) + " " + std::to_string(b) + " " + speed + " " + latency + " 0\n";
    ++count;
  };
  for (int gpu = 0; gpu < gpus; ++gpu) {
    link(gpu, gpus + gpu / 8, "2880Gbps", "0.000025ms");
    link(gpu, gpus + inner + gpu % outer, "400Gbps", "0.0005ms");
  }
  for (int leaf = 0; leaf < outer; ++leaf) {
    for (int spine = 0; spine < spines; ++spine) {
      link(gpus + inner + leaf, gpus + inner + outer + spine, "100Gbps", "500ns");
    }
  }
  std::string ids;
  for (int id = gpus; id < nodes; ++id) ids += std::to_string(id) + " ";
  return std::to_string(nodes) + " 8 " + std::to_string(inner) + " " +
         std::to_string(outer + spines) + " " + std::to_string(count) + " H100\n" + ids + "\n" +
         lines;
}

TEST(ImportTopology, SimAiCountsItsInnerSwitchesOut) {
  // 34 nodes less 2 switches inside servers and 16 others: 16 GPUs, 2 servers (aliyun/SimAI#140).
  const ClusterSpec cluster = parse(simai(34, 2, 16, 0));
  EXPECT_EQ(cluster.devices(), 16);
  EXPECT_EQ(cluster.nodes, 2);
  EXPECT_NEAR(cluster.intra_node.bandwidth_bytes_per_second, 360e9, 1);
  EXPECT_NEAR(cluster.inter_node.bandwidth_bytes_per_second, 50e9, 1);
  EXPECT_NEAR(cluster.intra_node.latency_seconds, 25e-9, 1e-15);
  EXPECT_NEAR(cluster.inter_node.latency_seconds, 500e-9, 1e-15);
  EXPECT_TRUE(cluster.levels.empty());
  EXPECT_EQ(topology_device(simai(34, 2, 16, 0)), "h100");
  EXPECT_EQ(topology_device("topology: [Ring]"), "");
}

TEST(ImportTopology, SimAiFilesThatAreWrongAreRefused) {
  const std::string good = simai(34, 2, 16, 0);
  EXPECT_THAT(problem("35" + good.substr(2)), HasSubstr("17 GPUs, expected a multiple of 8"));
  EXPECT_THAT(problem(good + "0 16 1Gbps 1us 0\n"), HasSubstr("the file has 33"));
  EXPECT_THAT(problem(good.substr(0, good.size() - 30)), HasSubstr("links claimed"));
  EXPECT_THAT(problem("16777216 8 0 0 16777216 H100\n\n0 1 1Gbps 1us 0\n"),
              HasSubstr("links claimed"));
  EXPECT_THAT(problem("9 8 1 0 8 H100\n8\n" + std::string("0 8 fast 1us 0\n") +
                      "1 8 1Gbps 1us 0\n2 8 1Gbps 1us 0\n3 8 1Gbps 1us 0\n4 8 1Gbps 1us 0\n"
                      "5 8 1Gbps 1us 0\n6 8 1Gbps 1us 0\n7 8 1Gbps 1us 0\n"),
              HasSubstr("line 3: bandwidth 'fast'"));
  EXPECT_THAT(problem("9 8 1 0 8 H100\n8 9\n" + std::string(8, '\n')), HasSubstr("links claimed"));
}

TEST(ImportTopology, RoundTripsThroughAClusterFile) {
  const ClusterSpec cluster = parse(simai(34, 2, 16, 0));
  const ClusterSpec again = parse_cluster(cluster_json(cluster), "again");
  EXPECT_EQ(cluster_json(again), cluster_json(cluster));
}

}  // namespace
}  // namespace hydraulis
