#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/compute.h"

namespace hydraulis::cuda {

/// What one block of an attention kernel owns, a few rows of queries (or keys), and the keys (or
/// queries) that it goes through. When causal, own query r sees keys 0…first + r of the stretch;
/// own key r is seen by queries r… of the stretch, which then begins at the first that sees any.
struct AttentionTile {
  std::int64_t row = 0;
  std::int64_t other_row = 0;
  std::int32_t count = 0;
  std::int32_t other_count = 0;
  std::int32_t first = 0;
  std::int32_t causal = 0;
};

/// Tiles of at most so many queries, those with the most work first, so that no long one starts
/// last.
std::vector<AttentionTile> query_tiles(std::span<const AttentionSegment> segments,
                                       std::int64_t tile_rows);
/// The same of keys, in rounds to be run one after another: a key may be in several segments, but
/// no key is in two tiles of a round, because who owns a tile adds to what its keys' gradients are.
std::vector<std::vector<AttentionTile>> key_tiles(std::span<const AttentionSegment> segments,
                                                  std::int64_t tile_rows);

}  // namespace hydraulis::cuda
