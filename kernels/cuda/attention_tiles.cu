#include <algorithm>
#include <limits>
#include <stdexcept>

#include "kernels/cuda/attention_tiles.h"

namespace hydraulis::cuda {

namespace {

void longest_first(std::vector<AttentionTile>& tiles) {
  std::stable_sort(tiles.begin(), tiles.end(), [](const AttentionTile& a, const AttentionTile& b) {
    return a.other_count > b.other_count;
  });
}

std::int32_t count32(std::int64_t count) {
  if (count > std::numeric_limits<std::int32_t>::max()) {
    throw std::logic_error("attention over a sequence of more than 2^31 - 1 tokens");
  }
  return static_cast<std::int32_t>(count);
}

}  // namespace

std::vector<AttentionTile> query_tiles(std::span<const AttentionSegment> segments,
                                       std::int64_t tile_rows) {
  std::vector<AttentionTile> tiles;
  for (const AttentionSegment& s : segments) {
    if (s.key_count == 0) continue;
    for (std::int64_t i = 0; i < s.query_count; i += tile_rows) {
      const std::int64_t count = std::min(tile_rows, s.query_count - i);
      tiles.push_back({s.query_begin + i, s.key_begin, count32(count),
                       count32(s.causal ? i + count : s.key_count), count32(i), s.causal ? 1 : 0});
    }
  }
  longest_first(tiles);
  return tiles;
}

std::vector<std::vector<AttentionTile>> key_tiles(std::span<const AttentionSegment> segments,
                                                  std::int64_t tile_rows) {
  std::vector<AttentionSegment> by_keys;
  for (const AttentionSegment& s : segments) {
    if (s.query_count > 0 && s.key_count > 0) by_keys.push_back(s);
  }
  std::stable_sort(by_keys.begin(), by_keys.end(),
                   [](const AttentionSegment& a, const AttentionSegment& b) {
                     return a.key_begin < b.key_begin;
                   });
  std::vector<std::vector<AttentionTile>> rounds;
  std::vector<std::int64_t> ends;  // of the keys of each round
  for (const AttentionSegment& s : by_keys) {
    const auto free = std::find_if(ends.begin(), ends.end(),
                                   [&](std::int64_t end) { return end <= s.key_begin; });
    const auto round = static_cast<std::size_t>(free - ends.begin());
    if (free == ends.end()) {
      rounds.emplace_back();
      ends.push_back(0);
    }
    ends[round] = s.key_begin + s.key_count;
    for (std::int64_t j = 0; j < s.key_count; j += tile_rows) {
      const std::int64_t count = std::min(tile_rows, s.key_count - j);
      const std::int64_t skipped = s.causal ? j : 0;
      rounds[round].push_back({s.key_begin + j, s.query_begin + skipped, count32(count),
                               count32(s.query_count - skipped), 0, s.causal ? 1 : 0});
    }
  }
  for (std::vector<AttentionTile>& round : rounds) longest_first(round);
  return rounds;
}

}  // namespace hydraulis::cuda
