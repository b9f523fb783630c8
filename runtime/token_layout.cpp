#include "runtime/token_layout.h"

#include "base/error.h"

namespace hydraulis {

TokenLayout token_layout(std::span<const std::uint32_t> lengths, int cp, int tp, int rank) {
  TokenLayout layout;
  layout.cp = cp;
  layout.rank = rank;
  std::int64_t first_token = 0;
  const auto add_rows = [&](std::int64_t from, std::int64_t count, std::int64_t length) {
    for (std::int64_t position = from; position < from + count; ++position) {
      const bool real = position < length;
      layout.positions.push_back(static_cast<std::int32_t>(position));
      layout.sources.push_back(real ? first_token + position : -1);
    }
  };
  for (const std::int64_t length : lengths) {
    if (length == 0) continue;
    const std::int64_t chunks = cp == 1 ? 1 : 2 * cp;
    const std::int64_t chunk = (length + chunks - 1) / chunks;
    layout.pieces.push_back({static_cast<std::int64_t>(layout.sources.size()), chunk});
    add_rows(rank * chunk, chunk, length);
    if (cp > 1) add_rows((chunks - 1 - rank) * chunk, chunk, length);
    first_token += length;
  }
  layout.used_rows = static_cast<std::int64_t>(layout.sources.size());
  layout.rows = (layout.used_rows + tp - 1) / tp * tp;
  layout.positions.resize(layout.rows, 0);
  layout.sources.resize(layout.rows, -1);
  return layout;
}

std::vector<AttentionSegment> TokenLayout::segments(int from) const {
  std::vector<AttentionSegment> result;
  result.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    const std::int64_t chunk = piece.chunk;
    if (from == rank) {
      // Both chunks are in ascending order, so the index within the piece orders positions.
      const std::int64_t rows_of_piece = cp == 1 ? chunk : 2 * chunk;
      result.push_back({piece.begin, rows_of_piece, piece.begin, rows_of_piece, true});
    } else if (from < rank) {
      // Their first chunk lies before both of ours, their second after both.
      result.push_back({piece.begin, 2 * chunk, piece.begin, chunk, false});
    } else {
      // Both their chunks lie between ours.
      result.push_back({piece.begin + chunk, chunk, piece.begin, 2 * chunk, false});
    }
  }
  return result;
}

}  // namespace hydraulis
