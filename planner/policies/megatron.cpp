#include "planner/policies/homogeneous.h"
#include "planner/policies/own_groups.h"
#include "planner/policies/policies.h"
#include "planner/policies/static_layout.h"

namespace hydraulis {

std::unique_ptr<Policy> make_megatron(const PolicySetup& setup) {
  const std::int64_t context = setup.context;
  return std::make_unique<StaticLayout>(
      with_rings(setup),
      [context](std::span<const Sequence> sequences, const HomogeneousLayout& layout) {
        const PipelineCost& pipeline = layout.prepared.pipelines.front().front();
        const auto capacity = static_cast<std::uint64_t>(pipeline.padded(context));
        expect_at_most(sequences, context, "a pack");
        std::vector<MicroBatch> packs;
        for (const Sequence& sequence : sequences) {
          const auto size = static_cast<std::uint64_t>(pipeline.padded(sequence.length));
          if (packs.empty() || packs.back().tokens() + packs.back().padding + size > capacity) {
            packs.emplace_back();
          }
          add_sequence(packs.back(), sequence, pipeline);
        }
        for (MicroBatch& pack : packs) pack.padding = capacity - pack.tokens();
        return deal_round_robin(std::move(packs), sequences, layout);
      });
}

}  // namespace hydraulis
