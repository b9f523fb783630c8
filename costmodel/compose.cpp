#include "costmodel/compose.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "costmodel/collective_cost.h"
#include "costmodel/compose_operations.h"
#include "costmodel/cost_model.h"

namespace hydraulis {
namespace {

constexpr std::array kContextDegrees = {1, 2, 4, 8};
constexpr std::array kTensorDegrees = {1, 2, 4, 8, 16};
constexpr std::array kPipelineDegrees = {1, 2, 3, 4, 6, 8};
constexpr int kGridSteps = 8;        ///< token counts of the grid
constexpr double kGridDepth = 64;    ///< the largest over the smallest token count
constexpr double kSmallMessage = 8;  ///< bytes of a sum over all devices
constexpr std::size_t kMostNotesOfAKind = 3;

int element_bytes(const OperatorProfile& profile) {
  for (const KernelSample& sample : profile.kernels) {
    if (sample.shape.inputs == 0) continue;
    if (sample.data_type == "f64") return 8;
    return sample.data_type == "bf16" || sample.data_type == "f16" ? 2 : 4;
  }
  return 4;
}

/// Without measurements: NCCL's prior where it knows the devices, else a ring over the cluster's
/// links.
double unmeasured_seconds(const ClusterSpec& cluster, Collective operation, int ranks, int nodes,
                          double bytes, FitUse& use, const TrafficScale& scale) {
  const CollectiveNetwork network = collective_network(cluster, scale.latency, scale.bandwidth);
  const bool prior = network.generation != NcclGeneration::none;
  use.borrowed.emplace(to_string(operation), prior ? "NCCL's cost table over the cluster's links"
                                                   : "the cluster's links");
  const GroupPlacement group = even_placement(ranks, nodes);
  return collective_cost(operation, group, bytes, network,
                         prior ? CollectiveAlgorithm::automatic : CollectiveAlgorithm::ring)
      .seconds();
}

double group_seconds(const OperatorFits& fits, const ClusterSpec& cluster, Collective operation,
                     int ranks, int nodes, double bytes, FitUse& use,
                     const TrafficScale& scale = {}) {
  const auto measured =
      collective_seconds(fits, operation, ranks, nodes, bytes, use, scale.latency, scale.bandwidth);
  if (measured) return *measured;
  return unmeasured_seconds(cluster, operation, ranks, nodes, bytes, use, scale);
}

double seconds_of(const Work& work, const OperatorFits& fits, const ClusterSpec& cluster, int tp,
                  FitUse& use) {
  double seconds = 0;
  double attention = 0;
  for (const KernelUse& kernel : work.kernels) {
    const double one = kernel_seconds(fits, kernel.shape, static_cast<double>(kernel.tokens),
                                      kernel.sum_squares, use);
    seconds += one;
    if (is_attention(kernel.shape.kernel)) attention += one;
  }
  const int node = std::max(1, cluster.devices_per_node);
  double beside = 0;
  for (const CollectiveUse& collective : work.collectives) {
    const bool tensor = collective.group == WorkGroup::tensor;
    const int devices = tensor ? collective.ranks : collective.ranks * tp;
    const int nodes = (devices + node - 1) / node;
    // A ring step is a message to the next; the slowest one crosses nodes when the ring does.
    const int ranks = collective.operation == Collective::send ? 2 : collective.ranks;
    const double one = collective.count * group_seconds(fits, cluster, collective.operation, ranks,
                                                        std::min(nodes, ranks),
                                                        static_cast<double>(collective.bytes), use);
    (collective.beside_attention ? beside : seconds) += one;
  }
  // Processes move their messages with the core that computes.
  if (cluster.cores_per_node > 0) return seconds + beside;
  return seconds + std::max(0.0, beside - attention);
}

/// Whether a kernel works on flat memory, not on the tokens of a micro-batch.
bool is_flat(Kernel kernel) { return kernel == Kernel::adamw || kernel == Kernel::sum_squares; }

/// Micro-batches inside the measured range of tokens and lengths on a device.
std::vector<BatchSize> grid(double least_tokens, double most_tokens, double longest, int cp) {
  std::vector<BatchSize> batches;
  const double step = std::pow(kGridDepth, 1.0 / (kGridSteps - 1));
  double tokens = most_tokens;
  for (int i = 0; i < kGridSteps && (i == 0 || tokens >= least_tokens); ++i, tokens /= step) {
    const double whole = std::floor(tokens) * cp;
    for (double length = std::min(whole, longest * cp); length >= std::min(whole, 16.0);
         length /= 4) {
      batches.push_back({whole, whole * length});
    }
  }
  return batches;
}

/// One part of a stage in the form of a cost: least squares of the relative error over the grid,
/// squares weighed by tokens, as micro-batches are packed towards the limit.
StageCost fitted(const std::vector<BatchSize>& batches, const std::vector<double>& seconds) {
  std::vector<std::vector<double>> columns(3);
  std::vector<double> target;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (!(seconds[i] > 0)) continue;
    const double weight = std::sqrt(batches[i].tokens);
    columns[0].push_back(weight * batches[i].sum_squares / seconds[i]);
    columns[1].push_back(weight * batches[i].tokens / seconds[i]);
    columns[2].push_back(weight / seconds[i]);
    target.push_back(weight);
  }
  if (target.empty()) return {};
  const std::vector<double> found = non_negative_least_squares(columns, target);
  return {found[0], found[1], found[2]};
}

class Composer {
 public:
  Composer(const MeasuredOperators& operators, const ModelSpec& model, const ClusterSpec& cluster)
      : operators_(operators), model_(model), cluster_(cluster) {
    for (const KernelFit& fit : operators.fits.kernels) {
      if (!is_flat(fit.shape.kernel)) least_tokens_ = std::max(least_tokens_, fit.least_tokens);
      if (fit.shape.inputs > 0) {
        most_tokens_ = most_tokens_ > 0 ? std::min(most_tokens_, fit.most_tokens) : fit.most_tokens;
      }
      if (is_attention(fit.shape.kernel)) longest_ = std::max(longest_, fit.longest);
    }
    if (!(most_tokens_ > 0) || !(longest_ > 0)) {
      throw InputError("profile {}: has no measurements of {}, stage times cannot be composed",
                       operators.profile.name, most_tokens_ > 0 ? "attention" : "products");
    }
  }

  StageParts parts(const Scheme& scheme) {
    const std::vector<BatchSize> batches =
        grid(least_tokens_ * scheme.tp, most_tokens_, longest_, scheme.cp);
    const int bytes = operators_.element_bytes;
    StageParts parts;
    whole_.assign(batches.size(), 0);
    fit(scheme, batches, parts.layer, [&](const BatchSize& batch, WorkPass pass) {
      return layer_work(model_, scheme, batch, pass, bytes);
    });
    note_error(batches, parts.layer);
    fit(scheme, batches, parts.stage, [&](const BatchSize& batch, WorkPass pass) {
      return stage_work(model_, scheme, batch, pass);
    });
    fit(scheme, batches, parts.first, [&](const BatchSize& batch, WorkPass pass) {
      return embedding_work(model_, scheme, batch, pass, bytes);
    });
    fit(scheme, batches, parts.last, [&](const BatchSize& batch, WorkPass pass) {
      return head_work(model_, scheme, batch, pass, bytes);
    });
    return parts;
  }

  double most_tokens() const { return most_tokens_; }
  double longest() const { return longest_; }
  const FitUse& use() const { return use_; }
  double mean_error() const { return points_ > 0 ? sum_error_ / points_ : 0; }
  double max_error() const { return max_error_; }

 private:
  using MakeWork = std::function<Work(const BatchSize&, WorkPass)>;

  void fit(const Scheme& scheme, const std::vector<BatchSize>& batches, StageParts::Part& part,
           const MakeWork& work) {
    for (const WorkPass pass : {WorkPass::forward, WorkPass::backward}) {
      std::vector<double> seconds;
      for (std::size_t i = 0; i < batches.size(); ++i) {
        seconds.push_back(
            seconds_of(work(batches[i], pass), operators_.fits, cluster_, scheme.tp, use_));
        whole_[i] += seconds.back();
      }
      (pass == WorkPass::forward ? part.forward : part.backward) = fitted(batches, seconds);
    }
  }

  /// How far a layer's time is from the form a·Σs² + b·Σs + c.
  void note_error(const std::vector<BatchSize>& batches, const StageParts::Part& layer) {
    for (std::size_t i = 0; i < batches.size(); ++i) {
      if (!(whole_[i] > 0)) continue;
      const auto& [tokens, squares] = batches[i];
      const double error = std::abs(
          (layer.forward.of(squares, tokens) + layer.backward.of(squares, tokens)) / whole_[i] - 1);
      sum_error_ += error;
      max_error_ = std::max(max_error_, error);
      ++points_;
    }
  }

  const MeasuredOperators& operators_;
  const ModelSpec& model_;
  const ClusterSpec& cluster_;
  double least_tokens_ = 1;
  double most_tokens_ = 0;
  double longest_ = 0;
  FitUse use_;
  std::vector<double> whole_;
  double sum_error_ = 0;
  double max_error_ = 0;
  int points_ = 0;
};

/// Why a tensor-parallel degree is left out, or "".
std::string tensor_problem(const ModelSpec& model, const ClusterSpec& cluster, int tp) {
  const int node = cluster.devices_per_node;
  if (tp > node ? tp % node != 0 : node % tp != 0) {
    return fmt::format("groups of {} do not fill nodes of {} devices evenly", tp, node);
  }
  return tensor_parallel_problem(model, tp);
}

void multiply(StageCost& cost, double factor) {
  cost.a *= factor;
  cost.b *= factor;
  cost.c *= factor;
}

/// The parts as runs with this scheme have shown them.
StageParts corrected(StageParts parts, const OperatorProfile& profile, const Scheme& scheme) {
  const std::string name = to_string(scheme);
  const double forward = correction(profile, CorrectedTime::forward, name);
  const double backward = correction(profile, CorrectedTime::backward, name);
  for (StageParts::Part* part : {&parts.layer, &parts.stage, &parts.first, &parts.last}) {
    multiply(part->forward, forward);
    multiply(part->backward, backward);
  }
  return parts;
}

/// A few sentences of a kind, and how many more there are.
void add_some(std::vector<std::string>& lines, const std::vector<std::string>& more) {
  for (std::size_t i = 0; i < more.size(); ++i) {
    if (i >= kMostNotesOfAKind && more.size() > i + 1) {
      lines.push_back(fmt::format("… and {} more such", more.size() - i));
      return;
    }
    lines.push_back(more[i]);
  }
}

/// Flat memory: by the fit that was measured on the most elements.
double row_seconds(const MeasuredOperators& operators, Kernel kernel, double elements) {
  const KernelFit* best = nullptr;
  const auto reach = [](const KernelFit& fit) {
    return fit.most_tokens * static_cast<double>(fit.shape.width);
  };
  for (const KernelFit& fit : operators.fits.kernels) {
    if (fit.shape.kernel != kernel) continue;
    if (best == nullptr || reach(fit) > reach(*best)) best = &fit;
  }
  if (best == nullptr || elements <= 0) return 0;
  return best->seconds(elements / static_cast<double>(best->shape.width));
}

}  // namespace

std::shared_ptr<const MeasuredOperators> measured_operators(OperatorProfile profile,
                                                            const std::string& where) {
  MeasuredOperators result;
  result.fits = fit_operators(profile, where);
  result.element_bytes = element_bytes(profile);
  result.profile = std::move(profile);
  return std::make_shared<const MeasuredOperators>(std::move(result));
}

Profile operator_profile(std::shared_ptr<const MeasuredOperators> operators) {
  const OperatorProfile& source = operators->profile;
  Profile profile;
  profile.name = source.name;
  profile.device = source.machine.device;
  profile.origin = source.origin;
  profile.limits = source.notes;
  std::vector<std::string> excluded;
  for (const auto& [what, reason] : source.excluded) {
    excluded.push_back(fmt::format("left out: {}: {}", what, reason));
  }
  add_some(profile.limits, excluded);
  add_some(profile.limits, bad_fits(operators->fits));
  profile.operators = std::move(operators);
  return profile;
}

Profile compose_profile(std::shared_ptr<const MeasuredOperators> operators, const ModelSpec& model,
                        const ClusterSpec& cluster) {
  check_model(model, "model " + model.name);
  if (operators->profile.machine.device != cluster.device.name && !operators->transferred) {
    if (auto other = transfer_operators(*operators, cluster)) operators = std::move(other);
  }
  Profile profile = operator_profile(operators);
  profile.model = model;
  profile.analytic = operators->transferred;
  Composer composer(*operators, model, cluster);
  std::vector<std::string> left_out;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    for (const int cp : kContextDegrees) {
      for (const int tp : kTensorDegrees) {
        if (cp * tp > cluster.devices()) continue;
        if (const std::string problem = tensor_problem(model, cluster, tp); !problem.empty()) {
          if (cp == 1 && recompute == Recompute::none) {
            left_out.push_back(fmt::format("tp={} is left out: {}", tp, problem));
          }
          continue;
        }
        Scheme scheme;
        scheme.cp = cp;
        scheme.tp = tp;
        scheme.recompute = recompute;
        const StageParts parts = composer.parts(scheme);
        for (const int pp : kPipelineDegrees) {
          scheme.pp = pp;
          if (pp > model.layers || scheme.devices() > cluster.devices()) continue;
          SchemeCoefficients row{scheme, 0, 0, 0, corrected(parts, operators->profile, scheme)};
          CostModel alone;
          alone.model = model;
          alone.profile.schemes.push_back(row);
          for (int stage = 0; stage < pp; ++stage) {
            const StageCost cost = stage_cost(alone, scheme, stage).value();
            row.a = std::max(row.a, cost.a);
            row.b = std::max(row.b, cost.b);
            row.c = std::max(row.c, cost.c);
          }
          profile.schemes.push_back(std::move(row));
        }
      }
    }
  }
  profile.measured_tokens = composer.most_tokens();
  profile.measured_length = composer.longest();
  const MemoryConstants& memory = operators->profile.memory;
  if (memory.process_bytes >= 0 || memory.workspace_bytes >= 0) {
    profile.memory.constant_gap_bytes =
        static_cast<double>(std::max<std::int64_t>(0, memory.process_bytes) +
                            std::max<std::int64_t>(0, memory.workspace_bytes));
  }
  profile.memory.safety_bytes = std::max(0.0, cluster.device.reserved_bytes);
  profile.contains_tensor_parallel_communication = true;
  profile.contains_pipeline_communication = false;
  profile.limits.push_back(fmt::format(
      "stage times are composed from operators; as a·Σs² + b·Σs + c a layer is off by {:.1f} % on "
      "average and {:.1f} % at most over micro-batches of up to {:.0f} tokens a device",
      100 * composer.mean_error(), 100 * composer.max_error(), composer.most_tokens()));
  if (!operators->profile.corrections.empty()) {
    profile.limits.push_back(fmt::format("{} times are corrected by runs that were measured",
                                         operators->profile.corrections.size()));
  }
  profile.limits.push_back(fmt::format(
      "measured up to {:.0f} tokens a device and sequences of {:.0f} tokens: beyond, times are "
      "extrapolated in the same form",
      composer.most_tokens(), composer.longest()));
  add_some(profile.limits, composer.use().missing_sentences());
  add_some(profile.limits, composer.use().borrowed_sentences());
  add_some(profile.limits, composer.use().beyond_sentences());
  add_some(profile.limits, left_out);
  return profile;
}

std::shared_ptr<const MeasuredOperators> transfer_operators(const MeasuredOperators& operators,
                                                            const ClusterSpec& cluster) {
  const MachineDescription& machine = operators.profile.machine;
  const DeviceSpec& device = cluster.device;
  if (!(machine.peak_flops > 0) || !(machine.memory_bytes_per_second > 0) ||
      !(device.peak_flops > 0) || !(device.memory_bandwidth_bytes_per_second > 0)) {
    return nullptr;
  }
  const double compute = machine.peak_flops / device.peak_flops;
  const double memory = machine.memory_bytes_per_second / device.memory_bandwidth_bytes_per_second;
  auto result = std::make_shared<MeasuredOperators>(operators);
  result->transferred = true;
  for (KernelFit& fit : result->fits.kernels) {
    const double factor = fit.shape.inputs > 0 || is_attention(fit.shape.kernel) ? compute : memory;
    fit.a *= factor;
    fit.b *= factor;
    fit.c *= factor;
    fit.curve.start *= factor;
    for (double& slope : fit.curve.slopes) slope *= factor;
  }
  result->fits.collectives.clear();
  result->fits.copies.clear();
  result->profile.notes.push_back(fmt::format(
      "analytic: measured on {} and carried over to {} by data sheet (products and attention times "
      "{:.3g}, row-wise kernels times {:.3g}, communication as if nobody had measured it)",
      machine.device, device.name, compute, memory));
  result->profile.machine.device = device.name;
  result->profile.memory = {};
  return result;
}

double message_seconds(const MeasuredOperators& operators, const ClusterSpec& cluster, double count,
                       double bytes, bool across, const TrafficScale& scale) {
  if (count <= 0) return 0;
  FitUse use;
  return count * group_seconds(operators.fits, cluster, Collective::send, 2, across ? 2 : 1,
                               bytes / count, use, scale);
}

double barrier_seconds(const MeasuredOperators& operators, const ClusterSpec& cluster, int devices,
                       const TrafficScale& scale) {
  if (devices < 2) return 0;
  FitUse use;
  const int node = std::max(1, cluster.devices_per_node);
  return group_seconds(operators.fits, cluster, Collective::all_reduce, devices,
                       (devices + node - 1) / node, kSmallMessage, use, scale);
}

double copy_seconds(const MeasuredOperators& operators, double bytes) {
  if (bytes <= 0) return 0;
  for (const CopyFit& fit : operators.fits.copies) {
    if (fit.direction == CopyDirection::device_to_device) return fit.curve.at(bytes);
  }
  return row_seconds(operators, Kernel::convert, bytes / operators.element_bytes);
}
double add_seconds(const MeasuredOperators& operators, double elements) {
  return row_seconds(operators, Kernel::add, elements);
}
double sum_squares_seconds(const MeasuredOperators& operators, double elements) {
  return row_seconds(operators, Kernel::sum_squares, elements);
}
double optimizer_seconds(const MeasuredOperators& operators, double elements) {
  return row_seconds(operators, Kernel::adamw, elements);
}

}  // namespace hydraulis
