// `hydraulis cluster`: clusters from other simulators' files, and what collectives take on one.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/atomic_file.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "costmodel/import_topology.h"
#include "costmodel/nccl_tests.h"
#include "report/collectives_report.h"
#include "report/validate_rows.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kLeastShown = 1 << 10;
constexpr std::int64_t kMostShown = std::int64_t{1} << 32;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 48;

struct ImportOptions {
  CommonOptions common;
  std::string file;
  std::string device;
};

void import_cluster(const ImportOptions& options) {
  refuse_same_file({{"-o", options.common.output}}, {{"FILE", options.file}});
  const std::string text = read_text_file(options.file);
  std::string device = options.device;
  if (device.empty()) device = topology_device(text);
  if (device.empty()) {
    throw InputError("{}: does not say what its devices are; give --device (a100, h100, ...)",
                     options.file);
  }
  const ClusterSpec cluster =
      parse_topology(text, options.file, load_cluster(device + "-1").device);
  const Json json = cluster_json(cluster);
  if (!options.common.output.empty()) write_text_file(options.common.output, to_text(json));
  Report report;
  report.json = json;
  Table table;
  table.columns = {{"field", "field", 0, Align::left}, {"value", "value", 0, Align::left}};
  const auto add = [&](const char* field, std::string value) {
    table.rows.push_back({std::string(field), std::move(value)});
  };
  const auto link = [](const LinkSpec& spec) {
    return fmt::format("{:.4g} GB/s a device, {:.4g} us", spec.bandwidth_bytes_per_second / 1e9,
                       spec.latency_seconds * 1e6);
  };
  add("devices", fmt::format("{} nodes of {} {}", cluster.nodes, cluster.devices_per_node,
                             cluster.device.name));
  add("inside a node", link(cluster.intra_node));
  if (cluster.nodes > 1) add("between nodes", link(cluster.inter_node));
  for (const TopologyLevel& level : cluster.levels) {
    add("level", fmt::format("{}: {} nodes, oversubscription {:.4g}, {:.4g} us", level.name,
                             level.nodes, level.oversubscription, level.latency_seconds * 1e6));
  }
  table.notes = cluster.notes;
  table.notes.insert(table.notes.end(), cluster.warnings.begin(), cluster.warnings.end());
  table.notes.push_back(fmt::format("the device is that of the preset {}", device));
  report.tables = {std::move(table)};
  emit(options.common, report, false);
}

struct CollectivesOptions {
  CommonOptions common;
  std::string operation = "all_reduce";
  int devices = 0;
  int nodes = 0;
  std::vector<std::string> bytes;
  std::string measured;
};

std::vector<CollectiveSample> measured_points(const CollectivesOptions& options, int devices) {
  if (!options.measured.ends_with(".csv")) {
    NcclTestsOptions how;
    how.ranks = options.devices;
    how.nodes = options.nodes;
    return read_nccl_tests(options.measured, how).samples;
  }
  std::vector<CollectiveSample> points;
  for (const auto& [bytes, seconds] : read_all_reduce_table(options.measured, devices).points) {
    CollectiveSample point;
    point.ranks = devices;
    point.nodes = std::max(1, options.nodes);
    point.bytes = static_cast<std::int64_t>(bytes);
    point.time.median_seconds = seconds;
    points.push_back(point);
  }
  return points;
}

void collectives(const CollectivesOptions& options) {
  CollectivesQuery query;
  query.cluster = load_cluster(options.common.cluster);
  query.algorithm = options.common.collectives.value_or(CollectiveAlgorithm::automatic);
  const int all = query.cluster.devices();
  const int devices = options.devices > 0 ? options.devices : all;
  const int per_node = query.cluster.devices_per_node;
  const int nodes = options.nodes > 0 ? options.nodes : (devices + per_node - 1) / per_node;
  if (devices > all || nodes > query.cluster.nodes || nodes > devices ||
      (devices + nodes - 1) / nodes > per_node) {
    throw InputError(
        "--devices {} on --nodes {}: expected a part of the {} nodes of {} devices of "
        "cluster {}",
        devices, nodes, query.cluster.nodes, per_node, query.cluster.name);
  }
  if (!options.measured.empty()) {
    query.points = measured_points(options, devices);
  } else {
    CollectiveSample point;
    point.operation = parse_collective(options.operation, "--operation");
    point.ranks = point.operation == Collective::send ? 2 : devices;
    point.nodes = std::min(nodes, point.ranks);
    if (options.bytes.empty()) {
      for (point.bytes = kLeastShown; point.bytes <= kMostShown; point.bytes *= 4) {
        query.points.push_back(point);
      }
    }
    for (const std::string& bytes : options.bytes) {
      point.bytes = static_cast<std::int64_t>(std::stoull(bytes));
      query.points.push_back(point);
    }
  }
  emit(options.common, collectives_report(query));
}

void add_import_command(CLI::App& parent) {
  auto options = std::make_shared<ImportOptions>();
  CLI::App* command = parent.add_subcommand(
      "import", "a cluster file from a network of ASTRA-sim (YAML) or SimAI (text)");
  command->add_option("FILE", options->file, "network file")->required()->check(not_empty());
  command
      ->add_option("--device", options->device,
                   "what the nodes hold: a100, a800, h100, ... [as the file says]")
      ->check(not_empty());
  add_common_options(*command, options->common, Has::format | Has::output);
  command->get_option("--output")->description("cluster file to write (JSON), for --cluster");
  command->footer("Example:\n  hydraulis cluster import network.yml --device h100 -o cluster.json");
  command->callback([options] { import_cluster(*options); });
}

void add_collectives_command(CLI::App& parent) {
  auto options = std::make_shared<CollectivesOptions>();
  CLI::App* command = parent.add_subcommand(
      "collectives", "what a collective takes by each algorithm, beside measurements if given");
  command
      ->add_option("--cluster", options->common.cluster,
                   "preset (a800-64, h100-1024, ...) or JSON file")
      ->check(not_empty())
      ->capture_default_str();
  command
      ->add_option("--operation", options->operation,
                   "all_reduce, reduce_scatter, all_gather, broadcast, all_to_all or send")
      ->check(not_empty())
      ->capture_default_str();
  command->add_option("--devices", options->devices, "in the group [all of the cluster]")
      ->check(whole_number(1, 1 << 20));
  command->add_option("--nodes", options->nodes, "that they are spread over [as few as they fill]")
      ->check(whole_number(1, 1 << 17));
  command
      ->add_option("--bytes", options->bytes,
                   "sizes, separated by commas, as nccl-tests counts them [1 KiB to 4 GiB]")
      ->delimiter(',')
      ->check(whole_number(1, kMostBytes));
  add_collectives_option(*command, options->common, false);
  command
      ->add_option("--measured", options->measured,
                   "output of nccl-tests, or a CSV of an all-reduce with size(B) and time(ns)")
      ->check(not_empty());
  add_common_options(*command, options->common, Has::format | Has::output);
  command->footer(
      "Example:\n  hydraulis cluster collectives --cluster a100-64 --devices 16 --operation "
      "all_gather");
  command->callback([options] { collectives(*options); });
}

}  // namespace

void add_cluster_commands(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("cluster", "clusters from other simulators' files; cost of collectives");
  command->require_subcommand(1);
  add_import_command(*command);
  add_collectives_command(*command);
}

}  // namespace hydraulis
