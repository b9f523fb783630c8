#include "planner/policies/policies.h"
#include "planner/policies/sharded_layout.h"

namespace hydraulis {

std::unique_ptr<Policy> make_fsdp(const PolicySetup& setup) {
  const std::int64_t context = setup.context;
  return make_sharded_policy(
      setup, ContextExchange::ring,
      [context](std::span<const Sequence> sequences, const ShardedLayout& layout) {
        const PipelineCost& pipeline = layout.times.pipeline;
        const std::int64_t capacity = pipeline.padded(context);
        std::vector<std::vector<MicroBatch>> groups(static_cast<std::size_t>(layout.groups));
        for (std::size_t i = 0; i < sequences.size(); ++i) {
          auto& group = groups[i % groups.size()];
          const std::int64_t size = pipeline.padded(sequences[i].length);
          if (group.empty() ||
              static_cast<std::int64_t>(group.back().tokens() + group.back().padding) + size >
                  capacity) {
            group.emplace_back();
          }
          add_sequence(group.back(), sequences[i], pipeline);
        }
        return groups;
      });
}

}  // namespace hydraulis
