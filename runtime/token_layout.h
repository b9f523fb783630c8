#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/compute.h"

namespace hydraulis {

/// Where the tokens of a micro-batch lie on the devices of one context-parallel rank. With cp ranks
/// every sequence is padded to a multiple of 2·cp and cut into 2·cp chunks, of which rank r holds
/// chunks r and 2·cp−1−r, one behind the other: equal tokens and equal causal work for all (the
/// zigzag split). All ranks have the same number of rows, a multiple of tp; rows that hold no token
/// of the batch (source −1) carry no loss and no real token attends to them.
struct TokenLayout {
  int cp = 1;
  int rank = 0;
  std::int64_t rows = 0;
  std::vector<std::int32_t> positions;  ///< by row, within its sequence (0 for rows of padding)
  std::vector<std::int64_t> sources;    ///< by row: token of the concatenated sequences, or −1
  struct Piece {
    std::int64_t begin = 0;  ///< first row of a sequence
    std::int64_t chunk = 0;  ///< rows of one chunk; the whole sequence when cp is 1
  };
  std::vector<Piece> pieces;   ///< of sequences that are not empty
  std::int64_t used_rows = 0;  ///< rows of sequences, the rest being padding to a multiple of tp

  /// What this rank's queries attend to among the keys of rank `from`: the whole causal relation
  /// once every rank's keys have come by.
  std::vector<AttentionSegment> segments(int from) const;
};

TokenLayout token_layout(std::span<const std::uint32_t> lengths, int cp, int tp, int rank);

}  // namespace hydraulis
