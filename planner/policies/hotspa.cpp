#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "base/error.h"
#include "planner/packing.h"
#include "planner/parameter_traffic.h"
#include "planner/policies/homogeneous.h"
#include "planner/policies/own_groups.h"
#include "planner/policies/policies.h"
#include "planner/policies/sharded_layout.h"
#include "planner/schedule.h"

namespace hydraulis {
namespace {

/// Lengths (after, upto] and the scheme that every replica trains them with.
struct Bucket {
  std::int64_t after = 0;
  std::int64_t upto = 0;
  Scheme scheme;
};

/// A bucket's sequences, packed to its longest length and dealt round robin over its replicas.
std::vector<PipelinePlan> plan_bucket(const Bucket& bucket, std::span<const Sequence> batch,
                                      const PipelineCost& pipeline, int replicas) {
  std::vector<Sequence> sequences;
  std::vector<std::int64_t> sizes;
  for (const Sequence& sequence : batch) {
    if (sequence.length <= bucket.after || sequence.length > bucket.upto) continue;
    sequences.push_back(sequence);
    sizes.push_back(pipeline.padded(sequence.length));
  }
  std::vector<PipelinePlan> pipelines;
  if (sequences.empty()) return pipelines;
  for (int i = 0; i < replicas; ++i) pipelines.push_back({bucket.scheme, {}});
  std::size_t next = 0;
  for (const auto& bin : pack_fewest_bins(sizes, pipeline.padded(bucket.upto))) {
    MicroBatch& micro_batch = pipelines[next++ % pipelines.size()].micro_batches.emplace_back();
    for (const int item : bin) add_sequence(micro_batch, sequences[item], pipeline);
  }
  return pipelines;
}

/// A layout over the whole cluster with its own optimizer layout.
CostModel own_layout(const CostModel& base, const Scheme& scheme) {
  CostModel model = base;
  model.optimizer = {base.cluster.devices() / (scheme.tp * scheme.pp), scheme.tp, scheme.pp};
  return model;
}

/// Finds the buckets of the least mean time. What a scheme holds and moves is worked out with the
/// optimizer in its own layout and checked again with that of the longest bucket's.
class Search {
 public:
  explicit Search(const PolicySetup& setup) : setup_(setup), batches_(tuning_batches(setup)) {
    for (const Scheme& scheme : known_schemes(setup.model)) {
      if (setup.model.cluster.devices() % scheme.devices() != 0) continue;
      Layout layout;
      layout.pipeline =
          make_pipeline_cost(own_layout(setup.model, scheme), scheme, setup.assignment.max_tokens);
      longest_ = std::max(longest_, layout.pipeline.max_tokens);
      if (setup.assignment.count_parameter_traffic) {
        const auto replicas =
            static_cast<std::size_t>(setup.model.cluster.devices() / scheme.devices());
        layout.switch_seconds =
            parameter_traffic_seconds(Strategy(replicas, scheme), own_layout(setup.model, scheme));
      }
      layouts_.push_back(std::move(layout));
    }
    // The published buckets of a 32K context end at 4K and 16K; halves down to a sixteenth.
    for (std::int64_t upto = setup.context; upto > setup.context / 32 && upto > 0; upto /= 2) {
      ends_.push_back(upto);
    }
    std::reverse(ends_.begin(), ends_.end());
  }

  /// The model with the optimizer layout of the longest bucket, and all buckets.
  std::pair<CostModel, std::vector<Bucket>> find() {
    for (;;) {
      const std::vector<Bucket> buckets = best();
      if (buckets.empty()) refuse();
      const CostModel model = own_layout(setup_.model, buckets.back().scheme);
      bool all_fit = true;
      for (const Bucket& bucket : buckets) {
        const PipelineCost cost =
            make_pipeline_cost(model, bucket.scheme, setup_.assignment.max_tokens);
        if (cost.padded(bucket.upto) <= cost.max_tokens) continue;
        seconds_[{bucket.after, bucket.upto, bucket.scheme}] =
            std::numeric_limits<double>::infinity();
        all_fit = false;
      }
      if (all_fit) return {model, buckets};
    }
  }

 private:
  struct Layout {
    PipelineCost pipeline;
    double switch_seconds = 0;  ///< parameters in and gradients out, which every phase moves
  };

  std::vector<Bucket> best() {
    struct Choice {
      double seconds = std::numeric_limits<double>::infinity();
      std::size_t before = 0;
      Bucket bucket;
    };
    std::vector<Choice> best(ends_.size() + 1);  // of sequences up to the j-th end
    best[0].seconds = 0;
    for (std::size_t j = 1; j <= ends_.size(); ++j) {
      for (std::size_t i = 0; i < j; ++i) {
        for (const Layout& layout : layouts_) {
          if (best[i].seconds >= best[j].seconds) break;
          const Bucket bucket{i == 0 ? 0 : ends_[i - 1], ends_[j - 1], layout.pipeline.scheme};
          const double total = best[i].seconds + mean_seconds(bucket, layout);
          if (total < best[j].seconds) best[j] = {total, i, bucket};
        }
      }
    }
    std::vector<Bucket> buckets;
    if (best.back().seconds == std::numeric_limits<double>::infinity()) return buckets;
    for (std::size_t j = ends_.size(); j > 0; j = best[j].before) {
      buckets.push_back(best[j].bucket);
    }
    std::reverse(buckets.begin(), buckets.end());
    return buckets;
  }

  double mean_seconds(const Bucket& bucket, const Layout& layout) {
    const auto [known, is_new] =
        seconds_.try_emplace({bucket.after, bucket.upto, bucket.scheme}, 0);
    double& seconds = known->second;
    if (!is_new) return seconds;
    const PipelineCost& pipeline = layout.pipeline;
    if (pipeline.padded(bucket.upto) > pipeline.max_tokens) {
      return seconds = std::numeric_limits<double>::infinity();
    }
    const int replicas = setup_.model.cluster.devices() / bucket.scheme.devices();
    for (const auto& batch : batches_) {
      double slowest = 0;
      for (const PipelinePlan& one : plan_bucket(bucket, batch, pipeline, replicas)) {
        slowest = std::max(slowest, pipeline_makespan(pipeline, one.micro_batches));
      }
      if (slowest > 0) seconds += slowest + layout.switch_seconds;
    }
    return seconds /= static_cast<double>(std::max<std::size_t>(1, batches_.size()));
  }

  [[noreturn]] void refuse() const {
    throw InfeasibleError(
        "infeasible: memory per micro-batch: no homogeneous layout of {} devices holds {} tokens, "
        "the context; the longest is {} tokens, {} fewer; lower the context to that or use devices "
        "with more memory",
        setup_.model.cluster.devices(), setup_.context, longest_, setup_.context - longest_);
  }

  const PolicySetup& setup_;
  std::vector<std::vector<Sequence>> batches_;
  std::vector<Layout> layouts_;
  std::vector<std::int64_t> ends_;
  std::map<std::tuple<std::int64_t, std::int64_t, Scheme>, double> seconds_;
  std::int64_t longest_ = 0;
};

class HotSpa : public OwnGroups {
 public:
  explicit HotSpa(const PolicySetup& setup) : HotSpa(setup, find(with_rings(setup))) {}

 protected:
  BatchPlan group(std::span<const Batch> window) override {
    const std::vector<Sequence> sequences = sequences_of(window.front());
    expect_at_most(sequences, buckets_.back().upto, "the longest bucket");
    BatchPlan plan;
    for (const Bucket& bucket : buckets_) {
      const int phase = plan.pipelines.empty() ? 0 : plan.phases();
      const int replicas = model_.cluster.devices() / bucket.scheme.devices();
      for (PipelinePlan& one : plan_bucket(bucket, sequences, costs_.of(bucket.scheme), replicas)) {
        one.phase = phase;
        plan.pipelines.push_back(std::move(one));
      }
    }
    return plan;
  }

 private:
  static std::pair<CostModel, std::vector<Bucket>> find(const PolicySetup& setup) {
    return Search(setup).find();
  }

  HotSpa(const PolicySetup& setup, std::pair<CostModel, std::vector<Bucket>> found)
      : OwnGroups(std::move(found.first), setup.assignment.max_tokens),
        buckets_(std::move(found.second)) {
    for (const Bucket& bucket : buckets_) {
      remark_ +=
          fmt::format("{}up to {} tokens {}x{}", remark_.empty() ? "" : ", ", bucket.upto,
                      model_.cluster.devices() / bucket.scheme.devices(), to_string(bucket.scheme));
    }
  }

  std::vector<Bucket> buckets_;  ///< ascending; the last one's scheme holds the optimizer
};

}  // namespace

std::unique_ptr<Policy> make_hotspa(const PolicySetup& setup) {
  return std::make_unique<HotSpa>(setup);
}

}  // namespace hydraulis
