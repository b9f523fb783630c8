#pragma once

#include <optional>
#include <vector>

#include "costmodel/collective_cost.h"
#include "report/report.h"

namespace hydraulis {

/// What a collective takes by each algorithm, and by measurement where there is one.
struct CollectivesQuery {
  ClusterSpec cluster;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::automatic;
  /// One row each; without a measurement its time is 0.
  std::vector<CollectiveSample> points;
};

/// `cluster collectives`: JSON {points[{operation, devices, nodes, bytes, algorithm, protocol, ms,
/// latency_ms, busbw_gigabytes_per_second, ring_ms, tree_ms, hierarchical_ms (null where the
/// operation has none), measured_ms, error (predicted over measured less 1)}], mean_abs_error,
/// mean_abs_error_from_16_mib (null without measurements), notes}. CSV: the points.
Report collectives_report(const CollectivesQuery& query);

}  // namespace hydraulis
