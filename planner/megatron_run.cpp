#include "planner/megatron_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "costmodel/megatron_arguments.h"

namespace hydraulis {
namespace {

constexpr int kMostDegree = 1 << 16;
constexpr int kMostSequence = 1 << 30;
constexpr int kMostBatch = 1 << 24;

void refuse_what_is_not_simulated(MegatronArguments& arguments) {
  const std::string sharded =
      "fully sharded data parallelism is a policy here (compare --policies fsdp), not an argument";
  for (const char* name : {"use-torch-fsdp2", "use-custom-fsdp", "use-megatron-fsdp"}) {
    arguments.refuse(name, sharded);
  }
  arguments.refuse("fp8-format", "fp8 is not simulated: profiles are of bf16");
  arguments.refuse("fp4-format", "fp4 is not simulated: profiles are of bf16");
  arguments.refuse("pipeline-model-parallel-layout", "custom pipeline layouts are not read");
  for (const char* name :
       {"account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split"}) {
    arguments.refuse(name, "layers are split without it: use --decoder-first-pipeline-num-layers");
  }
  arguments.refuse("cpu-offloading", "activations in host memory are not simulated");
  arguments.refuse("optimizer-cpu-offload", "give the plan --optimizer-states host instead");
}

class Reader {
 public:
  Reader(MegatronArguments arguments, const ClusterSpec& cluster)
      : arguments_(std::move(arguments)), cluster_(cluster) {}

  MegatronRun read() {
    refuse_what_is_not_simulated(arguments_);
    run_.model = kMegatronPrefix + arguments_.where();
    layers_ = megatron_model(arguments_, run_.notes).layers;
    degrees();
    schedule();
    batch();
    run_.strategies =
        fmt::format("{}x({},{},{}{}{})", replicas_, cp_, tp_, pp_, recompute(), split());
    remarks();
    return std::move(run_);
  }

 private:
  int degree(const char* name) { return arguments_.integer(name, 1, kMostDegree).value_or(1); }

  void degrees() {
    tp_ = degree("tensor-model-parallel-size");
    pp_ = degree("pipeline-model-parallel-size");
    cp_ = degree("context-parallel-size");
    const int devices = cluster_.devices();
    const auto nodes = arguments_.integer("nnodes", 1, kMostDegree);
    const auto of_node = arguments_.integer("nproc-per-node", 1, kMostDegree);
    if (nodes && of_node && std::int64_t{*nodes} * *of_node != devices) {
      arguments_.contradict(
          "nnodes", fmt::format("{} nodes of {} processes, but the cluster {} has {} devices",
                                *nodes, *of_node, cluster_.name, devices));
    }
    const std::int64_t model = std::int64_t{tp_} * pp_ * cp_;
    if (devices % model != 0) {
      arguments_.contradict(
          "tensor-model-parallel-size",
          fmt::format(
              "tp {} times pp {} times cp {} does not divide the {} devices of the cluster {}", tp_,
              pp_, cp_, devices, cluster_.name));
    }
    replicas_ = static_cast<int>(devices / model);
  }

  void schedule() {
    const auto layers = arguments_.integer("num-layers-per-virtual-pipeline-stage", 1, layers_);
    const auto stages = arguments_.integer("num-virtual-stages-per-pipeline-rank", 1, layers_);
    if (!layers && !stages) return;
    const char* name =
        layers ? "num-layers-per-virtual-pipeline-stage" : "num-virtual-stages-per-pipeline-rank";
    if (layers && stages) {
      arguments_.contradict(name, "given beside --num-virtual-stages-per-pipeline-rank");
    }
    if (pp_ == 1) arguments_.contradict(name, "needs --pipeline-model-parallel-size above 1");
    const int of_stage = layers_ / pp_;
    const int chunks = layers ? of_stage / *layers : *stages;
    if (layers_ % pp_ != 0 || chunks < 1 || of_stage % chunks != 0 ||
        (layers && of_stage % *layers != 0)) {
      arguments_.contradict(name, fmt::format("{} layers do not divide over {} stages of {} runs",
                                              layers_, pp_, chunks));
    }
    if (chunks == 1) return;
    run_.schedule = parse_schedule(fmt::format("interleaved:{}", chunks), "--" + std::string(name));
  }

  void batch() {
    const int length = arguments_.required("seq-length", 1, kMostSequence);
    const int micro = arguments_.required("micro-batch-size", 1, kMostBatch);
    const std::int64_t together = std::int64_t{micro} * replicas_;
    const auto given = arguments_.integer("global-batch-size", 1, kMostBatch);
    const std::int64_t global = given ? *given : together;
    if (global % together != 0) {
      arguments_.contradict("global-batch-size",
                            fmt::format("{} sequences do not divide into micro-batches of {} on {} "
                                        "replicas",
                                        global, micro, replicas_));
    }
    if (cp_ > 1 && length % (2 * cp_) != 0) {
      arguments_.contradict(
          "seq-length",
          fmt::format("{} does not divide by twice --context-parallel-size {}", length, cp_));
    }
    run_.context = static_cast<std::uint64_t>(length);
    run_.tokens_per_batch = run_.context * static_cast<std::uint64_t>(global);
    run_.max_tokens = std::int64_t{length} * micro;
  }

  std::string recompute() {
    const auto granularity = arguments_.text("recompute-granularity");
    const bool activations = arguments_.on("recompute-activations");
    const auto method = arguments_.text("recompute-method");
    const auto layers = arguments_.integer("recompute-num-layers", 1, kMostDegree);
    if (granularity && *granularity != "full" && *granularity != "selective") {
      arguments_.contradict("recompute-granularity",
                            fmt::format("'{}', expected full or selective", *granularity));
    }
    if (granularity == "full") {
      const int of_stage = (layers_ + pp_ - 1) / pp_;
      if (method == "block" && layers && *layers < of_stage) {
        arguments_.contradict("recompute-num-layers",
                              fmt::format("{} of {} layers: partial recomputation is not simulated",
                                          *layers, of_stage));
      }
      if (method == "uniform" && layers.value_or(1) > 1) {
        run_.notes.push_back(fmt::format(
            "--recompute-num-layers {}: memory counts what every layer keeps", *layers));
      }
      return ",recompute=full";
    }
    return granularity || activations ? ",recompute=selective" : "";
  }

  /// Layers of the first and the last stage that differ from the others.
  std::string split() {
    const auto first = arguments_.integer("decoder-first-pipeline-num-layers", 1, layers_);
    const auto last = arguments_.integer("decoder-last-pipeline-num-layers", 1, layers_);
    if (!first && !last) {
      if (layers_ % pp_ != 0) {
        arguments_.contradict("num-layers",
                              fmt::format("{} layers do not divide over {} stages", layers_, pp_));
      }
      return "";
    }
    const char* name =
        first ? "decoder-first-pipeline-num-layers" : "decoder-last-pipeline-num-layers";
    const int others = pp_ - (first ? 1 : 0) - (last ? 1 : 0);
    const int left = layers_ - first.value_or(0) - last.value_or(0);
    if (others < 0 || left < others || (others == 0 ? left != 0 : left % others != 0)) {
      arguments_.contradict(
          name, fmt::format("{} of {} layers are left for {} other stages", left, layers_, others));
    }
    if (run_.schedule.chunks > 1) arguments_.contradict(name, "not with an interleaved schedule");
    std::vector<int> layers;
    for (int stage = 0; stage < pp_; ++stage) {
      const bool is_first = first && stage == 0;
      const bool is_last = last && stage + 1 == pp_;
      layers.push_back(is_first ? *first : is_last ? *last : left / others);
    }
    return fmt::format(",layers={}", fmt::join(layers, "+"));
  }

  void remarks() {
    if (!arguments_.on("use-distributed-optimizer")) {
      run_.notes.push_back(
          "without --use-distributed-optimizer: optimizer states are split over replicas all the "
          "same, so less memory is counted than such a run needs");
    }
    if (tp_ > 1 && !arguments_.on("sequence-parallel")) {
      run_.notes.push_back("without --sequence-parallel: it is taken to be on, as tp is above 1");
    }
    std::vector<std::string> overlaps;
    for (const char* name : {"overlap-grad-reduce", "overlap-param-gather", "tp-comm-overlap"}) {
      if (arguments_.has(name)) overlaps.push_back("--" + std::string(name));
    }
    if (!overlaps.empty()) {
      run_.notes.push_back(fmt::format("{}: say it to the command, not in the arguments",
                                       fmt::join(overlaps, ", ")));
    }
    const std::vector<std::string> unknown = arguments_.unknown();
    if (!unknown.empty()) {
      run_.notes.push_back(
          fmt::format("not known here and left aside: {}", fmt::join(unknown, ", ")));
    }
    for (std::string& note : run_.notes) note = arguments_.where() + ": " + note;
  }

  MegatronArguments arguments_;
  const ClusterSpec& cluster_;
  MegatronRun run_;
  int layers_ = 0;
  int tp_ = 1;
  int pp_ = 1;
  int cp_ = 1;
  int replicas_ = 1;
};

}  // namespace

MegatronRun read_megatron_run(const std::filesystem::path& path, const ClusterSpec& cluster) {
  return Reader(read_megatron_arguments(path), cluster).read();
}

}  // namespace hydraulis
