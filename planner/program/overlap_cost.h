#pragma once

#include "costmodel/cluster_spec.h"

namespace hydraulis {

/// What computing and moving data at the same time costs on a GPU: the kernels that move the data
/// take streaming multiprocessors and memory bandwidth from those that compute. Measured over GPT
/// and LLaMA training on A100, H100, MI250 and MI210, computation is 18.9 % slower in the mean and
/// 40 % at most while communication overlaps with it (arXiv 2507.03114); Galvatron's documentation
/// gives factors of 1.1 to 1.3. 0 where the devices are none of the GPUs that we know by name:
/// what shares a node's cores is slowed down by those (cores_per_node).
double overlap_slowdown(const ClusterSpec& cluster);

/// Seconds that `compute` seconds of work take with `traffic` seconds of transfers beside it from
/// its start on.
double slowed(double compute, double traffic, double slowdown);

/// Share of the data sheet's bandwidth that all-to-alls reach on A100 nodes: FlexSP's published
/// cost model has 121 GB/s among the eight devices of a node (NVLink: 300) and 8.7 GB/s among
/// sixteen in two nodes, whose cards of 6.25 GB/s could give 11.7. 1 for other devices.
struct ExchangeShare {
  double inside = 1;
  double between = 1;
};
ExchangeShare exchange_share(const ClusterSpec& cluster);

}  // namespace hydraulis
