#include "planner/policies/sharded_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "costmodel/derived_schemes.h"
#include "planner/program/collectives.h"
#include "planner/program/overlap_cost.h"

namespace hydraulis {
namespace {

constexpr double kElementBytes = 2;  // bf16, as programs count
constexpr std::size_t kMostBatches = 16;

double gather_seconds(const CostModel& model, int begin, int end) {
  double parameters = 0;
  for (int layer = begin; layer < end; ++layer) {
    parameters +=
        static_cast<double>(layer == kEmbeddingLayer      ? embedding_parameters(model.model)
                            : layer == model.model.layers ? head_parameters(model.model)
                                                          : layer_parameters(model.model));
  }
  return traffic_seconds(all_gather_traffic(kElementBytes * parameters, model.cluster, end - begin),
                         model.cluster);
}

/// All-to-alls of one pass over all layers: per token of the micro-batch and per micro-batch.
StageCost exchange_cost(const CostModel& model, int cp) {
  if (cp == 1 || model.context_exchange != ContextExchange::all_to_all) return {};
  std::vector<int> devices(static_cast<std::size_t>(cp));
  std::iota(devices.begin(), devices.end(), 0);
  const ModelSpec& spec = model.model;
  constexpr double kTokens = 1 << 20;
  const double bytes = kTokens / cp * spec.head_dim *
                       (spec.heads + static_cast<double>(spec.kv_heads)) / 2 * kElementBytes;
  ReshardSummary traffic =
      all_to_all_traffic(bytes, devices, model.cluster.devices_per_node, 4 * spec.layers);
  const ExchangeShare share = exchange_share(model.cluster);
  ClusterSpec reached = model.cluster;
  reached.intra_node.bandwidth_bytes_per_second *= share.inside;
  reached.inter_node.bandwidth_bytes_per_second *= share.between;
  const double both = traffic_seconds(traffic, reached);
  traffic.messages = 0;
  const double moved = traffic_seconds(traffic, reached);
  return {0, moved / kTokens, both - moved};
}

double estimate(const std::vector<std::vector<MicroBatch>>& groups, const ShardedTimes& times,
                const ShardedStep& step) {
  std::size_t steps = 0;
  for (const auto& group : groups) steps = std::max(steps, group.size());
  double seconds = 0;
  for (std::size_t i = 0; i < steps; ++i) {
    double forward = 0;
    double backward = 0;
    for (const auto& group : groups) {
      if (i >= group.size()) continue;
      const double squares = group[i].sum_squares();
      const auto tokens = static_cast<double>(group[i].tokens() + group[i].padding);
      forward = std::max(forward, times.forward.of(squares, tokens));
      backward = std::max(backward, times.backward.of(squares, tokens));
    }
    seconds += step_seconds(step, forward, backward);
  }
  return seconds;
}

class Sharded : public OwnGroups {
 public:
  Sharded(const PolicySetup& setup, ContextExchange exchange, ShardedPlanner planner)
      : OwnGroups(sharded_model(setup.model, context_degrees(setup.model, exchange), exchange),
                  setup.assignment.max_tokens),
        context_(setup.context),
        planner_(std::move(planner)),
        layout_(best_sharded_layout(setup, model_, planner_, remark_)) {}

 protected:
  BatchPlan group(std::span<const Batch> window) override {
    const std::vector<Sequence> sequences = sequences_of(window.front());
    expect_at_most(sequences, context_, "the context");
    BatchPlan plan;
    for (auto& micro_batches : planner_(sequences, layout_)) {
      plan.pipelines.push_back({layout_.times.pipeline.scheme, std::move(micro_batches)});
    }
    return plan;
  }

 private:
  std::int64_t context_;
  ShardedPlanner planner_;
  ShardedLayout layout_;
};

}  // namespace

ShardedTimes sharded_times(const CostModel& model, const PipelineCost& pipeline, bool traffic) {
  ShardedTimes times;
  times.pipeline = pipeline;
  const StageCost& whole = pipeline.slowest;
  const auto measured = forward_cost(model, pipeline.scheme, 0);
  times.forward = measured ? *measured
                           : StageCost{kForwardShare * whole.a, kForwardShare * whole.b,
                                       kForwardShare * whole.c};
  times.backward = {whole.a - times.forward.a, whole.b - times.forward.b,
                    whole.c - times.forward.c};
  if (!traffic) return times;
  const StageCost exchange = exchange_cost(model, pipeline.scheme.cp);
  const double again = pipeline.scheme.recompute == Recompute::full ? 2 : 1;
  times.forward.b += exchange.b;
  times.forward.c += exchange.c;
  times.backward.b += again * exchange.b;
  times.backward.c += again * exchange.c;
  return times;
}

ShardedStep sharded_step(const CostModel& model, bool traffic) {
  if (!traffic) return {};
  const int layers = model.model.layers;
  ShardedStep step;
  step.first_gather = gather_seconds(model, kEmbeddingLayer, 1);
  step.other_gathers = gather_seconds(model, 1, layers + 1);
  step.first_backward_gather = gather_seconds(model, layers - 1, layers + 1);
  step.beside_backward =
      gather_seconds(model, kEmbeddingLayer, layers - 1) + gather_seconds(model, 1, layers + 1);
  step.last_reduction = step.first_gather;
  step.slowdown = overlap_slowdown(model.cluster);
  return step;
}

double step_seconds(const ShardedStep& step, double forward, double backward) {
  const auto beside = [&](double compute, double traffic) {
    return std::max(slowed(compute, traffic, step.slowdown), traffic);
  };
  return step.first_gather + beside(forward, step.other_gathers) + step.first_backward_gather +
         beside(backward, step.beside_backward) + step.last_reduction;
}

std::vector<int> context_degrees(const CostModel& model, ContextExchange exchange) {
  std::vector<int> degrees;
  const int devices = model.cluster.devices();
  for (int cp = 1; cp <= devices; cp *= 2) {
    if (devices % cp != 0) break;
    if (exchange == ContextExchange::all_to_all && model.model.heads % cp != 0) break;
    degrees.push_back(cp);
  }
  return degrees;
}

std::vector<std::vector<Sequence>> tuning_batches(const PolicySetup& setup) {
  const std::size_t count = std::min(kMostBatches, setup.batches.size());
  std::vector<std::vector<Sequence>> batches;
  for (std::size_t i = 0; i < count; ++i) {
    batches.push_back(sequences_of(setup.batches[i * setup.batches.size() / count]));
  }
  return batches;
}

ShardedLayout best_sharded_layout(const PolicySetup& setup, const CostModel& model,
                                  const ShardedPlanner& planner, std::string& remark) {
  const auto batches = tuning_batches(setup);
  const bool traffic = setup.assignment.count_parameter_traffic;
  const ShardedStep step = sharded_step(model, traffic);
  ShardedLayout best;
  double best_seconds = std::numeric_limits<double>::infinity();
  std::int64_t longest = 0;
  int tried = 0;
  for (const Scheme& scheme : known_schemes(model)) {
    const PipelineCost pipeline = make_pipeline_cost(model, scheme, setup.assignment.max_tokens);
    longest = std::max(longest, pipeline.max_tokens);
    if (pipeline.padded(setup.context) > pipeline.max_tokens) continue;
    ++tried;
    const ShardedLayout layout{sharded_times(model, pipeline, traffic),
                               model.cluster.devices() / scheme.cp};
    double seconds = 0;
    for (const auto& batch : batches) {
      seconds += estimate(planner(batch, layout), layout.times, step);
      if (seconds >= best_seconds) break;
    }
    if (seconds < best_seconds) {
      best_seconds = seconds;
      best = layout;
    }
  }
  if (tried == 0) {
    throw InfeasibleError(
        "infeasible: memory per micro-batch: with sharded parameters no group of {} devices holds "
        "{} tokens, the context; the longest is {} tokens, {} fewer; lower the context to that or "
        "use devices with more memory",
        model.cluster.devices(), setup.context, longest, setup.context - longest);
  }
  const Scheme& scheme = best.times.pipeline.scheme;
  remark = fmt::format(
      "{} groups of {} device{}{}, best of {} layouts that hold the context; sharded parameters, "
      "composed memory",
      best.groups, scheme.cp, scheme.cp == 1 ? "" : "s",
      scheme.recompute == Recompute::full ? " with recomputation" : "", tried);
  return best;
}

std::unique_ptr<Policy> make_sharded_policy(const PolicySetup& setup, ContextExchange exchange,
                                            ShardedPlanner planner) {
  return std::make_unique<Sharded>(setup, exchange, std::move(planner));
}

}  // namespace hydraulis
