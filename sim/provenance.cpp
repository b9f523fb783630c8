#include "sim/provenance.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "costmodel/compose.h"
#include "costmodel/host_states.h"

namespace hydraulis {
namespace {

/// How a cluster says where its figures come from (ClusterSpec::origin).
SourceKind kind_of_origin(const std::string& origin) {
  if (origin == "data sheet") return SourceKind::data_sheet;
  if (origin == "measured") return SourceKind::measured;
  return SourceKind::stated;
}

std::string machine_text(const MachineDescription& machine) {
  std::string text = machine.device;
  if (!machine.processor.empty() && machine.processor != machine.device) {
    text += fmt::format(" ({})", machine.processor);
  }
  if (!machine.date.empty()) text += ", " + machine.date;
  return text;
}

class Sources {
 public:
  Sources(const CostModel& model, const CostingOptions* costing, const std::string& profile_file)
      : model_(model), costing_(costing), file_(profile_file) {}

  std::vector<Source> list() {
    stage_times();
    if (costing_ != nullptr && !costing_->no_communication) communication();
    memory();
    const ClusterSpec& cluster = model_.cluster;
    add("peak rate (of MFU)", kind_of_origin(cluster.origin),
        fmt::format("{} of {:.4g} TFLOP/s, cluster {}", cluster.device.name,
                    cluster.device.peak_flops / 1e12, cluster.name));
    return std::move(sources_);
  }

 private:
  void add(std::string what, SourceKind kind, std::string detail) {
    sources_.push_back({std::move(what), kind, std::move(detail)});
  }

  std::string named() const {
    const Profile& profile = model_.profile;
    const bool other = !file_.empty() && file_ != profile.name;
    return fmt::format("profile {}{}: {}", profile.name, other ? " (" + file_ + ")" : "",
                       profile.origin);
  }

  void stage_times() {
    const Profile& profile = model_.profile;
    if (!profile.operators) {
      add("stage times", profile.analytic ? SourceKind::data_sheet : SourceKind::measured, named());
      for (const std::string& limit : profile.limits) {
        if (limit.find("derived") == std::string::npos) continue;
        add("stage times of schemes that were not measured", SourceKind::data_sheet, limit);
      }
      return;
    }
    const MeasuredOperators& operators = *profile.operators;
    const OperatorProfile& measured = operators.profile;
    const SourceKind kind = operators.transferred ? SourceKind::data_sheet : SourceKind::measured;
    const auto kernels = [&](const char* what, auto is_one) {
      const auto count = std::ranges::count_if(measured.kernels, is_one);
      if (count == 0) return;
      add(what, kind,
          fmt::format("{} points on {}{}, {}", count, machine_text(measured.machine),
                      operators.transferred ? " carried over by data sheet" : "", named()));
    };
    kernels("matrix products", [](const KernelSample& sample) { return sample.shape.inputs > 0; });
    kernels("attention",
            [](const KernelSample& sample) { return is_attention(sample.shape.kernel); });
    kernels("row-wise kernels", [](const KernelSample& sample) {
      return sample.shape.inputs == 0 && !is_attention(sample.shape.kernel);
    });
    if (!measured.corrections.empty()) {
      add("corrections of stage times", SourceKind::measured,
          fmt::format("{} factors from runs that were measured, {}", measured.corrections.size(),
                      named()));
    }
    for (const Collective operation :
         {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce}) {
      operation_source(fmt::format("tensor-parallel {}", to_string(operation)), operation,
                       CollectiveAlgorithm::automatic);
    }
  }

  /// A collective's curves where there are some, else the table or the links.
  void operation_source(std::string what, Collective operation,
                        std::optional<CollectiveAlgorithm> algorithm) {
    std::set<std::string> files;
    int measured = 0;
    if (const auto& operators = model_.profile.operators) {
      for (const CollectiveSample& sample : operators->profile.collectives) {
        const bool kept = std::ranges::any_of(
            operators->fits.collectives,
            [&](const CollectiveFit& fit) { return fit.operation == operation; });
        if (sample.operation != operation || !kept) continue;
        if (sample.imported_from.empty()) {
          ++measured;
        } else {
          files.insert(sample.imported_from);
        }
      }
      if (measured > 0) {
        add(what, SourceKind::measured,
            fmt::format("{} points on {}", measured, machine_text(operators->profile.machine)));
      }
      for (const std::string& file : files) {
        add(what, SourceKind::imported, fmt::format("nccl-tests, {}", file));
      }
      if (measured > 0 || !files.empty()) return;
    }
    const CollectiveNetwork network = collective_network(model_.cluster);
    if (algorithm && network.generation != NcclGeneration::none) {
      add(std::move(what), SourceKind::prior,
          fmt::format("NCCL's public cost table ({}) over the cluster's links, {}",
                      to_string(network.generation), to_string(*algorithm)));
      return;
    }
    add(std::move(what), kind_of_origin(model_.cluster.origin),
        fmt::format("bytes and steps over the links of cluster {}{}", model_.cluster.name,
                    algorithm ? fmt::format(", {}", to_string(*algorithm)) : ""));
  }

  void communication() {
    const ClusterSpec& cluster = model_.cluster;
    for (const std::string& note : cluster.notes) {
      if (note.rfind("latencies:", 0) == 0) add("link latencies", SourceKind::prior, note);
    }
    link("link inside a node", cluster.intra_node, "intra-node");
    if (cluster.nodes > 1) link("link between nodes", cluster.inter_node, "inter-node");
    const auto& algorithm = costing_->collectives;
    if (model_.profile.contains_pipeline_communication) {
      add("pipeline messages", sources_.front().kind, "inside the stage times");
    } else {
      operation_source("messages (pipeline, resharding)", Collective::send, algorithm);
    }
    operation_source("barriers and the gradients' norm", Collective::all_reduce, algorithm);
    if (algorithm) {
      operation_source("parameter gathers", Collective::all_gather, algorithm);
      operation_source("gradient reductions", Collective::reduce_scatter, algorithm);
    }
    if (cluster.cores_per_node > 0) {
      add("cores shared by devices", kind_of_origin(cluster.origin),
          fmt::format("{} a node, cluster {}", cluster.cores_per_node, cluster.name));
    }
    optimizer_step();
  }

  /// Presets say of each link where its figure comes from.
  void link(const char* what, const LinkSpec& spec, const std::string& noted) {
    const ClusterSpec& cluster = model_.cluster;
    SourceKind kind = kind_of_origin(cluster.origin);
    std::string detail = fmt::format("{:.4g} GB/s and {:.3g} us, cluster {} ({})",
                                     spec.bandwidth_bytes_per_second / 1e9,
                                     spec.latency_seconds * 1e6, cluster.name, cluster.origin);
    for (const std::string& note : cluster.notes) {
      if (note.rfind(noted + ":", 0) != 0) continue;
      if (note.find("assumed") != std::string::npos) kind = SourceKind::assumed;
      detail = note + fmt::format(", cluster {}", cluster.name);
    }
    if (costing_->bandwidth_scale != 1 || costing_->latency_scale != 1) {
      detail += fmt::format("; what if: {:g} times the bandwidth, {:g} times the latency",
                            costing_->bandwidth_scale, costing_->latency_scale);
    }
    if (replay_options(model_, *costing_).network) detail += "; shared by the flows that use it";
    add(what, kind, std::move(detail));
  }

  void optimizer_step() {
    const ClusterSpec& cluster = model_.cluster;
    if (model_.states == OptimizerStates::host) {
      add("optimizer step", kind_of_origin(cluster.origin), host_step_text(cluster));
      return;
    }
    const auto& operators = model_.profile.operators;
    const bool measured =
        operators && std::ranges::any_of(operators->profile.kernels, [](const KernelSample& s) {
          return s.shape.kernel == Kernel::adamw;
        });
    if (measured) {
      add("optimizer step", operators->transferred ? SourceKind::data_sheet : SourceKind::measured,
          fmt::format("adamw on {}", machine_text(operators->profile.machine)));
      return;
    }
    add("optimizer step", kind_of_origin(cluster.origin),
        fmt::format("bytes over {:.4g} GB/s of device memory, cluster {}",
                    cluster.device.memory_bandwidth_bytes_per_second / 1e9, cluster.name));
  }

  void memory() {
    const Profile& profile = model_.profile;
    if (model_.memory == MemoryModel::published) {
      add("memory (published formula)", SourceKind::measured, "constants of " + named());
      return;
    }
    if (model_.cluster.device.reserved_bytes >= 0) {
      add("memory constant", kind_of_origin(model_.cluster.origin),
          fmt::format("reserved_gib of cluster {}", model_.cluster.name));
    }
    const bool own = profile.operators && profile.operators->profile.memory.process_bytes >= 0;
    if (own) {
      add("memory constant", SourceKind::measured,
          machine_text(profile.operators->profile.machine));
    } else if (model_.cluster.device.reserved_bytes < 0 &&
               profile.memory.constant_gap_bytes + profile.memory.safety_bytes > 0) {
      add("memory constant", SourceKind::measured, "as on A800, by the paper's authors");
    }
  }

  const CostModel& model_;
  const CostingOptions* costing_;
  const std::string& file_;
  std::vector<Source> sources_;
};

}  // namespace

std::vector<Source> sources_of(const CostModel& model, const CostingOptions* costing,
                               const std::string& profile_file) {
  return Sources(model, costing, profile_file).list();
}

const char* to_string(SourceKind kind) {
  constexpr std::array<const char*, kSourceKinds> kNames = {"measured",   "imported", "prior",
                                                            "data sheet", "stated",   "assumed"};
  return kNames[static_cast<std::size_t>(kind)];
}

Json sources_json(const std::vector<Source>& sources) {
  Json json = Json::array();
  for (const Source& source : sources) {
    json.push_back(
        {{"what", source.what}, {"source", to_string(source.kind)}, {"detail", source.detail}});
  }
  return json;
}

std::string sources_line(const std::vector<Source>& sources) {
  std::string line = "numbers";
  const char* separator = ": ";
  for (int k = 0; k < kSourceKinds; ++k) {
    const auto kind = static_cast<SourceKind>(k);
    std::string names;
    for (const Source& source : sources) {
      if (source.kind != kind) continue;
      names += (names.empty() ? "" : ", ") + source.what;
    }
    if (names.empty()) continue;
    line += fmt::format("{}{} ({})", separator, to_string(kind), names);
    separator = "; ";
  }
  return line;
}

}  // namespace hydraulis
