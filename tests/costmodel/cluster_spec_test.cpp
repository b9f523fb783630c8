#include "costmodel/cluster_spec.h"

#include <gtest/gtest.h>

#include "costmodel/node_groups.h"
#include "tests/costmodel/expect_error.h"

namespace hydraulis {
namespace {

Json example() { return cluster_json(load_cluster("a800-64")); }

bool suspicious(const ClusterSpec& cluster) {
  for (const std::string& note : cluster.warnings) {
    if (note.starts_with("suspicious")) return true;
  }
  return false;
}

TEST(ClusterSpec, Presets) {
  const ClusterSpec a800 = load_cluster("a800-64");
  EXPECT_EQ(a800.nodes, 8);
  EXPECT_EQ(a800.devices(), 64);
  EXPECT_DOUBLE_EQ(a800.inter_node.bandwidth_bytes_per_second, 25e9);
  EXPECT_DOUBLE_EQ(a800.intra_node.bandwidth_bytes_per_second, 200e9);
  for (const std::string device : {"a800", "a100", "h100", "h20", "h200"}) {
    for (const std::string count : {"1", "4", "8", "16", "1024"}) {
      const ClusterSpec cluster = load_cluster(device + "-" + count);
      EXPECT_EQ(cluster.devices(), std::stoi(count));
      EXPECT_EQ(cluster.device.name, device);
      EXPECT_FALSE(suspicious(cluster));
      EXPECT_FALSE(cluster.notes.empty());
    }
    for (const std::string count : {"0", "12", "1032", "x", "-8", "", "99999999999"}) {
      EXPECT_THROW(load_cluster(device + "-" + count), InputError) << count;
    }
  }
  expect_error<InputError>([] { load_cluster("b300-8"); }, {"b300-8", "a800-N"});
}

Json unlike() {
  Json json = example();
  const Json device = json.at("device");
  json.erase("device");
  json.erase("nodes");
  Json fast = device;
  fast["name"] = "h100";
  fast["peak_bf16_teraflops"] = 2 * device.at("peak_bf16_teraflops").get<double>();
  json["groups"] = {{{"nodes", 3}, {"device", device}},
                    {{"nodes", 1}, {"device", fast}},
                    {{"nodes", 2}, {"device", device}, {"relative_speed", 0.5}}};
  return json;
}

TEST(ClusterSpec, GroupsOfUnlikeDevices) {
  const ClusterSpec cluster = parse_cluster(unlike(), "c.json");
  EXPECT_EQ(cluster.nodes, 6);
  EXPECT_EQ(cluster.devices(), 48);
  EXPECT_EQ(cluster.device.name, "a800");
  ASSERT_EQ(group_count(cluster), 3);
  EXPECT_EQ(node_group(cluster, 1).device.name, "h100");
  EXPECT_DOUBLE_EQ(node_group(cluster, 1).relative_speed, 2);
  EXPECT_DOUBLE_EQ(node_group(cluster, 2).relative_speed, 0.5);
  EXPECT_EQ(first_node(cluster, 2), 4);
  EXPECT_EQ(group_devices(cluster, 2), 16);
  const double peak = cluster.device.peak_flops;
  EXPECT_DOUBLE_EQ(mean_peak_flops(cluster), (5 * peak + 2 * peak) / 6);
  EXPECT_EQ(cluster_json(parse_cluster(cluster_json(cluster), "c.json")), cluster_json(cluster));
  expect_error<InputError>([&] { node_group(cluster, 3); }, {"3 groups"});
  // All alike is one group.
  const ClusterSpec plain = load_cluster("a800-64");
  EXPECT_EQ(group_count(plain), 1);
  EXPECT_EQ(group_devices(plain, 0), 64);
  EXPECT_EQ(mean_peak_flops(plain), plain.device.peak_flops);
}

TEST(ClusterSpec, BadGroupsAreRefused) {
  const auto with = [](const Json& groups) {
    Json json = unlike();
    json["groups"] = groups;
    return json;
  };
  const Json good = unlike().at("groups")[0];
  const auto changed = [&](const char* field, const Json& value) {
    Json group = good;
    group[field] = value;
    return with(Json::array({group}));
  };
  for (const Json& json :
       {with(Json::array()), with(4), changed("nodes", 0), changed("nodes", (1 << 17) + 1),
        changed("relative_speed", 0), changed("relative_speed", -1), changed("speed", 1),
        changed("device", "a800")}) {
    expect_error<InputError>([&] { parse_cluster(json, "c.json"); }, {"c.json", "groups"});
  }
  Json both = unlike();
  both["nodes"] = 4;
  expect_error<InputError>([&] { parse_cluster(both, "c.json"); }, {"c.json", "nodes"});
}

TEST(ClusterSpec, JsonRoundTrip) {
  Json json = example();
  json["levels"] = {
      {{"name", "leaf"}, {"nodes", 4}, {"oversubscription", 2.0}, {"latency_microseconds", 1.0}}};
  EXPECT_EQ(parse_cluster(json, "c.json").cores_per_node, 0);
  json["cores_per_node"] = 48;
  json["network_cards"] = {
      {"per_node", 4}, {"bandwidth_gigabytes_per_second", 50.0}, {"rails", true}};
  json["node_inside"] = {{"bandwidth_gigabytes_per_second", 64.0}};
  const ClusterSpec cluster = parse_cluster(json, "c.json");
  EXPECT_EQ(cluster.cores_per_node, 48);
  ASSERT_EQ(cluster.levels.size(), 1u);
  EXPECT_DOUBLE_EQ(cluster.levels[0].oversubscription, 2);
  EXPECT_EQ(cluster.cards_per_node(), 4);
  EXPECT_DOUBLE_EQ(cluster.card_bandwidth(), 50e9);
  EXPECT_TRUE(cluster.rails);
  EXPECT_DOUBLE_EQ(cluster.node_inside_bytes_per_second, 64e9);
  // Whatever the order of the fields.
  EXPECT_EQ(nlohmann::json(cluster_json(cluster)), nlohmann::json(json));
}

TEST(ClusterSpec, GigabitsAndGigabytes) {
  Json json = example();
  json["inter_node"] = {{"bandwidth_gigabits_per_second", 200}, {"latency_microseconds", 5}};
  const ClusterSpec cluster = parse_cluster(json, "c.json");
  EXPECT_DOUBLE_EQ(cluster.inter_node.bandwidth_bytes_per_second, 25e9);
  EXPECT_DOUBLE_EQ(cluster.inter_node.latency_seconds, 5e-6);
  EXPECT_FALSE(suspicious(cluster));
  // 200 Gb/s written as 200 GB/s: eight times too fast, kept but noted.
  json["inter_node"] = {{"bandwidth_gigabytes_per_second", 200}};
  EXPECT_TRUE(suspicious(parse_cluster(json, "c.json")));
  json["intra_node"] = {{"bandwidth_gigabytes_per_second", 20}};
  json["inter_node"] = {{"bandwidth_gigabytes_per_second", 25}};
  EXPECT_TRUE(suspicious(parse_cluster(json, "c.json")));
  json["inter_node"] = {{"bandwidth_gigabytes_per_second", 25},
                        {"bandwidth_gigabits_per_second", 200}};
  expect_error<InputError>([&] { parse_cluster(json, "c.json"); },
                           {"c.json", "inter_node", "exactly one"});
  json["inter_node"] = {{"latency_microseconds", 5}};
  expect_error<InputError>([&] { parse_cluster(json, "c.json"); },
                           {"c.json", "inter_node", "exactly one"});
}

TEST(ClusterSpec, BadFields) {
  const auto refused = [](auto change, const std::vector<std::string>& parts) {
    Json json = example();
    change(json);
    expect_error<InputError>([&] { parse_cluster(json, "c.json"); }, parts);
  };
  refused([](Json& j) { j["node"] = 8; }, {"c.json", "'node'"});
  refused([](Json& j) { j.erase("nodes"); }, {"nodes", "missing"});
  refused([](Json& j) { j["nodes"] = 0; }, {"nodes"});
  refused([](Json& j) { j["nodes"] = 2.5; }, {"nodes"});
  refused([](Json& j) { j["nodes"] = 1 << 17, j["devices_per_node"] = 1024; }, {"nodes"});
  refused([](Json& j) { j["cores_per_node"] = 0; }, {"cores_per_node"});
  refused([](Json& j) { j["device"]["memory_gib"] = -1; }, {"device.memory_gib"});
  refused([](Json& j) { j["device"]["memory_gb"] = 80; }, {"device.memory_gb"});
  refused([](Json& j) { j["intra_node"]["bandwidth_gigabytes_per_second"] = 0; },
          {"intra_node.bandwidth_gigabytes_per_second"});
  refused([](Json& j) { j["intra_node"]["latency_microseconds"] = -1; }, {"latency_microseconds"});
  // Finite, but no times made of them would be.
  refused([](Json& j) { j["device"]["peak_bf16_teraflops"] = 1e-300; }, {"1e-06 to 1e+09"});
  refused([](Json& j) { j["intra_node"]["latency_microseconds"] = 1e308; },
          {"intra_node.latency_microseconds", "0 to 1e+09"});
  refused([](Json& j) { j.erase("inter_node"); }, {"inter_node", "missing"});
  refused([](Json& j) { j["levels"] = {{{"name", "leaf"}, {"nodes", 9}}}; }, {"levels[0].nodes"});
  refused(
      [](Json& j) {
        j["levels"] = {{{"name", "l"}, {"nodes", 4}, {"oversubscription", 0.5}}};
      },
      {"levels[0].oversubscription"});
  refused(
      [](Json& j) {
        j["levels"] = {{{"name", "leaf"}, {"nodes", 2}}, {{"name", "spine"}, {"nodes", 5}}};
      },
      {"levels[1].nodes", "multiple of the 2"});
  refused([](Json& j) { j["network_cards"] = {{"per_node", 9}}; }, {"network_cards.per_node"});
  refused([](Json& j) { j["network_cards"] = {{"rails", 1}}; }, {"network_cards.rails"});
  refused([](Json& j) { j["network_cards"] = {{"cards", 1}}; }, {"network_cards.cards"});
  refused(
      [](Json& j) {
        j["network_cards"] = {{"bandwidth_gigabits_per_second", 0}};
      },
      {"network_cards.bandwidth_gigabits_per_second"});
  refused([](Json& j) { j["node_inside"] = Json::object(); }, {"node_inside", "exactly one"});
  refused([](Json& j) { j = 3; }, {"c.json"});
}

}  // namespace
}  // namespace hydraulis
