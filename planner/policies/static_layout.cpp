#include "planner/policies/static_layout.h"

#include <algorithm>
#include <chrono>

#include "planner/bounds.h"
#include "planner/policies/policies.h"
#include "planner/schedule.h"

namespace hydraulis {

BatchPlan StaticLayout::plan(std::span<const Batch> window) {
  const auto start = std::chrono::steady_clock::now();
  BatchPlan plan = planner_(sequences_of(window.front()), layout_);
  plan.set_lower_bound_seconds = plan.lower_bound_seconds;
  plan.planning_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return plan;
}

BatchPlan deal_round_robin(std::vector<MicroBatch> micro_batches,
                           std::span<const Sequence> sequences, const HomogeneousLayout& layout) {
  const auto& pipelines = layout.prepared.pipelines.front();
  BatchPlan plan;
  plan.pipelines.resize(pipelines.size());
  for (std::size_t i = 0; i < micro_batches.size(); ++i) {
    plan.pipelines[i % pipelines.size()].micro_batches.push_back(std::move(micro_batches[i]));
  }
  for (std::size_t k = 0; k < pipelines.size(); ++k) {
    PipelinePlan& pipeline = plan.pipelines[k];
    pipeline.scheme = pipelines[k].scheme;
    pipeline.time_seconds = pipeline_makespan(pipelines[k], pipeline.micro_batches);
    plan.makespan_seconds = std::max(plan.makespan_seconds, pipeline.time_seconds);
  }
  plan.lower_bound_seconds = makespan_lower_bound(pipelines, sequences, BoundEffort::quick);
  return plan;
}

std::unique_ptr<Policy> make_hydraulis_static(const PolicySetup& setup) {
  return std::make_unique<StaticLayout>(
      setup, [](std::span<const Sequence> sequences, const HomogeneousLayout& layout) {
        return assign(sequences, layout.prepared);
      });
}

namespace {

/// Shapes are static: every pack is padded to the full length.
std::vector<MicroBatch> full_packs(std::span<const Sequence> sequences,
                                   const PipelineCost& pipeline, std::int64_t length) {
  const std::int64_t capacity = pipeline.padded(length);
  std::vector<std::int64_t> sizes;
  for (const Sequence& sequence : sequences) sizes.push_back(pipeline.padded(sequence.length));
  std::vector<MicroBatch> micro_batches;
  for (const auto& bin : pack_fewest_bins(sizes, capacity)) {
    MicroBatch& micro_batch = micro_batches.emplace_back();
    for (const int item : bin) {
      micro_batch.sequence_ids.push_back(sequences[item].id);
      micro_batch.lengths.push_back(sequences[item].length);
    }
    micro_batch.padding = static_cast<std::uint64_t>(capacity) - micro_batch.tokens();
  }
  return micro_batches;
}

}  // namespace

std::unique_ptr<Policy> make_static_pack(const PolicySetup& setup) {
  const std::int64_t pack = setup.context;
  return std::make_unique<StaticLayout>(
      setup, [pack](std::span<const Sequence> sequences, const HomogeneousLayout& layout) {
        const PipelineCost& pipeline = layout.prepared.pipelines.front().front();
        return deal_round_robin(full_packs(sequences, pipeline, pack), sequences, layout);
      });
}

std::unique_ptr<Policy> make_static_dispatch(const PolicySetup& setup) {
  const std::int64_t pack = setup.context;
  return std::make_unique<StaticLayout>(
      setup, [pack](std::span<const Sequence> sequences, const HomogeneousLayout& layout) {
        BatchPlan plan = assign(sequences, layout.prepared);
        const auto& pipelines = layout.prepared.pipelines.front();
        plan.makespan_seconds = 0;
        for (std::size_t k = 0; k < pipelines.size(); ++k) {
          PipelinePlan& pipeline = plan.pipelines[k];
          std::vector<Sequence> dealt;
          for (const MicroBatch& micro_batch : pipeline.micro_batches) {
            for (std::size_t i = 0; i < micro_batch.lengths.size(); ++i) {
              dealt.push_back({micro_batch.sequence_ids[i], micro_batch.lengths[i]});
            }
          }
          pipeline.micro_batches = full_packs(dealt, pipelines[k], pack);
          pipeline.time_seconds = pipeline_makespan(pipelines[k], pipeline.micro_batches);
          plan.makespan_seconds = std::max(plan.makespan_seconds, pipeline.time_seconds);
        }
        return plan;
      });
}

std::unique_ptr<Policy> make_static_pad(const PolicySetup& setup) {
  return std::make_unique<StaticLayout>(setup, [](std::span<const Sequence> sequences,
                                                  const HomogeneousLayout& layout) {
    const PipelineCost& pipeline = layout.prepared.pipelines.front().front();
    std::vector<Sequence> sorted(sequences.begin(), sequences.end());
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Sequence& x, const Sequence& y) { return x.length > y.length; });
    std::vector<MicroBatch> micro_batches;
    for (std::size_t first = 0; first < sorted.size();) {
      const std::int64_t row = pipeline.padded(sorted[first].length);
      const auto rows =
          static_cast<std::size_t>(std::max<std::int64_t>(1, pipeline.max_tokens / row));
      const std::size_t last = std::min(sorted.size(), first + rows);
      MicroBatch& micro_batch = micro_batches.emplace_back();
      for (std::size_t i = first; i < last; ++i) {
        micro_batch.sequence_ids.push_back(sorted[i].id);
        micro_batch.lengths.push_back(sorted[i].length);
      }
      micro_batch.padding = static_cast<std::uint64_t>(row) * (last - first) - micro_batch.tokens();
      first = last;
    }
    return deal_round_robin(std::move(micro_batches), sequences, layout);
  });
}

}  // namespace hydraulis
