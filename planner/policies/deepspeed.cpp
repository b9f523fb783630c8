#include "planner/packing.h"
#include "planner/policies/policies.h"
#include "planner/policies/sharded_layout.h"

namespace hydraulis {

std::unique_ptr<Policy> make_deepspeed(const PolicySetup& setup) {
  const std::int64_t context = setup.context;
  return make_sharded_policy(
      setup, ContextExchange::all_to_all,
      [context](std::span<const Sequence> sequences, const ShardedLayout& layout) {
        const PipelineCost& pipeline = layout.times.pipeline;
        std::vector<std::int64_t> sizes;
        for (const Sequence& sequence : sequences) {
          sizes.push_back(pipeline.padded(sequence.length));
        }
        std::vector<std::vector<MicroBatch>> groups(static_cast<std::size_t>(layout.groups));
        std::size_t next = 0;
        for (const auto& bin : pack_fewest_bins(sizes, pipeline.padded(context))) {
          MicroBatch& micro_batch = groups[next++ % groups.size()].emplace_back();
          for (const int item : bin) add_sequence(micro_batch, sequences[item], pipeline);
        }
        return groups;
      });
}

}  // namespace hydraulis
