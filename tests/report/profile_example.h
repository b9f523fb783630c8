#pragma once

#include <cmath>

#include "costmodel/operator_profile.h"

namespace hydraulis::test {

inline Timing timing(double seconds) { return {seconds, 0.95 * seconds, 1.1 * seconds, 9, true}; }

/// Products at 100 GFLOP/s and 2 us, attention, an all-reduce at 10 GB/s and 5 us, a copy: laws
/// that fits can meet. Times are multiplied by `slower`.
inline OperatorProfile example_profile(double slower = 1) {
  OperatorProfile profile;
  profile.name = "example";
  profile.origin = "made for a test";
  profile.machine.device = "cpu";
  profile.machine.processor = "made up";
  profile.machine.ranks = 4;
  profile.machine.cores = 4;
  profile.machine.threads_per_rank = 1;
  profile.machine.software = {{"compiler", "1.2"}};
  for (const std::int64_t tokens : {16, 64, 256, 1024, 4096}) {
    KernelSample product;
    product.shape.kernel = Kernel::gemm_forward;
    product.shape.inputs = 100;
    product.shape.outputs = 500;
    product.tokens = tokens;
    const auto rows = static_cast<double>(tokens);
    product.time = timing(slower * (2e-6 + rows * 2 * 100 * 500 / 100e9));
    profile.kernels.push_back(product);
    for (const std::int64_t length : {tokens, std::int64_t{16}}) {
      if (length == tokens && tokens == 16 && profile.kernels.size() > 1) continue;
      KernelSample attention;
      attention.shape.kernel = Kernel::attention;
      attention.shape.heads = 4;
      attention.shape.kv_heads = 2;
      attention.shape.head_dim = 8;
      attention.tokens = tokens;
      attention.length = length;
      attention.time =
          timing(slower * (1e-6 + 1e-8 * rows + 1e-10 * rows * static_cast<double>(length)));
      profile.kernels.push_back(attention);
    }
  }
  for (std::int64_t bytes = 1024; bytes <= 1 << 24; bytes *= 4) {
    CollectiveSample sample;
    sample.operation = Collective::all_reduce;
    sample.ranks = 4;
    sample.bytes = bytes;
    sample.time = timing(slower * (5e-6 + static_cast<double>(bytes) / 10e9));
    sample.checked = true;
    profile.collectives.push_back(sample);
    profile.copies.push_back({CopyDirection::host_to_device, bytes,
                              timing(slower * (1e-7 + static_cast<double>(bytes) / 20e9))});
  }
  for (int rank = 0; rank < 4; ++rank) {
    profile.ranks.push_back({rank, rank < 2 ? "node0" : "node1", 90e9, 20e9});
  }
  profile.excluded.push_back(
      {"all_reduce, 4 ranks on 1 node, 67108864 bytes", "data check failed"});
  profile.notes.push_back("a note");
  return profile;
}

}  // namespace hydraulis::test
