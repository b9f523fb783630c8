#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/optimizer_shard.h"

namespace hydraulis {

/// Hands out elements from `first` on of a tensor, row by row as in files.
using TensorReader =
    std::function<void(const LogicalTensor& tensor, std::int64_t first, std::span<double> values)>;

/// Fills a matrix of the shard (parameters or moments) from whole tensors that every rank can read.
void load_shard(const OptimizerShard& shard, Matrix into, const DecoderSpec& decoder,
                const TensorReader& read);

/// A logical tensor whole, in row order.
struct WholeTensor {
  LogicalTensor tensor;
  std::vector<double> values;
};

/// The rank that writes each logical tensor of a checkpoint: tensors by falling size to the rank
/// with least so far, so the same on all ranks.
std::vector<int> checkpoint_writers(const std::vector<LogicalTensor>& tensors, int ranks);

/// Brings the tensors that this rank writes here from the ranks that own their parts. All ranks
/// call it together.
std::vector<WholeTensor> gather_tensors(const Backend& backend, const OptimizerShard& shard,
                                        Matrix of, const DecoderSpec& decoder);

}  // namespace hydraulis
