#pragma once

#include "costmodel/profile.h"

namespace hydraulis::detail {

/// Work of one stage before any efficiency: seconds at the data sheet's peak rates. Shared by the
/// calibration (which divides measured times by it) and the analytic profile.
struct IdealTimes {
  double attention_per_token2 = 0;     ///< causal attention, forward and backward with its re-run
  double matrices_per_token = 0;       ///< weight matrices and the head, 6 operations an element
  double communication_per_token = 0;  ///< tensor-parallel collectives and ring-attention blocks
  double layers = 0;                   ///< layers of the stage; recomputed ones count 4/3
  double ring_latency = 0;             ///< seconds per micro-batch
};
IdealTimes ideal_times(const ModelSpec& model, const ClusterSpec& cluster, const Scheme& scheme);

/// Seconds that the ring of context parallelism takes on one stage at the links' full rates, beside
/// nothing: per token of the whole sequence (b) and per micro-batch (c).
StageCost ring_attention_traffic(const ModelSpec& model, const ClusterSpec& cluster,
                                 const Scheme& scheme);

/// Measured over ideal, from the shipped A800 tables by least squares of the relative error.
struct Calibration {
  double attention_factor = 0;      ///< 1 / efficiency
  double matrix_factor = 0;         ///< 1 / efficiency
  double communication_factor = 0;  ///< 1 / share of the link's bandwidth
  double seconds_per_layer = 0;     ///< constant of a micro-batch: kernel launches and the like
  double mean_error_a = 0;          ///< mean |predicted/measured − 1| over the rows used
  double mean_error_b = 0;
  double mean_error_c = 0;
  int rows = 0;            ///< rows used for b and c
  int attention_rows = 0;  ///< rows used for a: those slower than the device's peak
};
const Calibration& calibration();

}  // namespace hydraulis::detail
