#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hydraulis::cuda {

/// How the gradients of tokens are added to rows of the table: tokens of one row, in their order,
/// cut into pieces that blocks sum side by side, then added piece after piece.
struct EmbeddingPlan {
  struct Piece {
    std::int64_t begin = 0;  ///< in `tokens`
    std::int64_t end = 0;
  };
  struct Row {
    std::int64_t row = 0;  ///< of the table
    std::int64_t first_piece = 0;
    std::int64_t end_piece = 0;
  };
  std::vector<std::int64_t> tokens;
  std::vector<Piece> pieces;
  std::vector<Row> rows;
};

/// Ids outside [first_row, first_row + rows) have no row here.
EmbeddingPlan plan_embedding(std::span<const std::int32_t> ids, std::int64_t first_row,
                             std::int64_t rows);

}  // namespace hydraulis::cuda
