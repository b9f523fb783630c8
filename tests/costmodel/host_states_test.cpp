#include "costmodel/host_states.h"

#include <gtest/gtest.h>

#include <cmath>

#include "costmodel/build_cost_model.h"
#include "tests/costmodel/expect_error.h"

namespace hydraulis {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

ClusterSpec with_host(double link, double memory_bandwidth, double memory_bytes = 0) {
  ClusterSpec cluster = load_cluster("h100-16");
  cluster.host = {{link, 0}, memory_bytes, memory_bandwidth};
  return cluster;
}

CostModel model_of(const ClusterSpec& cluster, OptimizerStates states) {
  const ModelSpec spec = load_model("llama-7b");
  return make_cost_model(spec, cluster, default_profile(spec, cluster), MemoryModel::composed,
                         {16, 1, 1}, states);
}

TEST(HostStates, LeaveTheDeviceWhatStaysThere) {
  const ClusterSpec cluster = with_host(32e9, 400e9);
  const CostModel device = model_of(cluster, OptimizerStates::device);
  const CostModel host = model_of(cluster, OptimizerStates::host);
  Scheme scheme;
  scheme.tp = 2;
  const StageMemory before = stage_memory(device, scheme, 0, 1000, 1000);
  const StageMemory after = stage_memory(host, scheme, 0, 1000, 1000);
  EXPECT_DOUBLE_EQ(after.optimizer, before.optimizer / 12 * 6);
  EXPECT_DOUBLE_EQ(after.total() - after.optimizer, before.total() - before.optimizer);
  EXPECT_GT(max_tokens(host, scheme), max_tokens(device, scheme));
  // 12 bytes a parameter and two buckets of 4 + 2 bytes an element.
  EXPECT_DOUBLE_EQ(host_state_bytes(owned_elements(host)),
                   12 * owned_elements(host) + 2 * 6 * 4 * (1 << 20));
  EXPECT_DOUBLE_EQ(host_state_bytes(1000), 24 * 1000);
}

// 3 equal buckets: down, update and up of one, then the slowest of the three twice more.
TEST(HostStates, AStepOverlapsItsBuckets) {
  const double elements = 3.0 * (4 << 20);
  const double bucket = 4 << 20;
  const double shared = 100e9 / 8;  // of a node's memory, a device
  // Updates take longest.
  EXPECT_NEAR(host_step_seconds(with_host(32e9, 100e9), elements),
              6 * bucket / 32e9 + 3 * 34 * bucket / shared, 1e-12);
  // Copies down do.
  EXPECT_NEAR(host_step_seconds(with_host(1e9, 100e9), elements),
              3 * 4 * bucket / 1e9 + 34 * bucket / shared + 2 * bucket / 1e9, 1e-12);
  ClusterSpec late = with_host(32e9, 100e9);
  late.host.link.latency_seconds = 1e-3;
  EXPECT_NEAR(
      host_step_seconds(late, elements) - host_step_seconds(with_host(32e9, 100e9), elements), 2e-3,
      1e-12);
  EXPECT_EQ(host_step_seconds(ClusterSpec{}, elements), 0);
}

TEST(HostStates, WhatCannotBeIsSaid) {
  const auto keep = [](const ClusterSpec& cluster) { model_of(cluster, OptimizerStates::host); };
  ClusterSpec unknown = load_cluster("h100-16");
  unknown.host = {};
  expect_error<InputError>([&] { keep(unknown); }, {"h100-16", "field 'host' is missing"});
  ClusterSpec cores = with_host(32e9, 400e9);
  cores.cores_per_node = 8;
  expect_error<InputError>([&] { keep(cores); }, {"processes on the cores"});
  const ClusterSpec small = with_host(32e9, 400e9, 4 * kGiB);
  expect_error<InfeasibleError>([&] { keep(small); },
                                {"host memory", "4.0 GiB", "nodes hold them"});
  const ModelSpec spec = load_model("llama-32b");
  const ClusterSpec a800 = load_cluster("a800-64");
  expect_error<InputError>(
      [&] {
        make_cost_model(spec, a800, default_profile(spec, a800), MemoryModel::published, {4, 16, 1},
                        OptimizerStates::host);
      },
      {"published memory model", "composed"});
  expect_error<InputError>([] { parse_optimizer_states("disk", "here"); },
                           {"here", "disk", "device or host"});
}

TEST(HostStates, AClustersHostIsReadAndWritten) {
  Json json = cluster_json(load_cluster("h100-16"));
  EXPECT_DOUBLE_EQ(parse_cluster(json, "c").host.link.bandwidth_bytes_per_second, 63e9);
  json["host"]["link"]["bandwidth_gigabytes_per_second"] = -1;
  expect_error<InputError>([&] { parse_cluster(json, "c"); }, {"host.link"});
  json.erase("host");
  EXPECT_FALSE(parse_cluster(json, "c").host.known());
  EXPECT_FALSE(cluster_json(parse_cluster(json, "c")).contains("host"));
  json["host"] = {{"link", {{"bandwidth_gigabits_per_second", 256}}}};
  expect_error<InputError>([&] { parse_cluster(json, "c"); },
                           {"host.memory_bandwidth_gigabytes_per_second"});
}

}  // namespace
}  // namespace hydraulis
