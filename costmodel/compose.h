#pragma once

#include <memory>

#include "costmodel/cluster_spec.h"
#include "costmodel/fit.h"
#include "costmodel/model_spec.h"
#include "costmodel/profile.h"

namespace hydraulis {

/// A profile of operators with its fits, shared by the profiles composed from it.
struct MeasuredOperators {
  OperatorProfile profile;
  OperatorFits fits;
  int element_bytes = 4;  ///< of activations, parameters in use and gradients
  /// Shapes, groups and sizes are taken from another device by its data sheet.
  bool transferred = false;
};

/// Fits the measurements. Throws InputError naming the field (`where`: the file).
std::shared_ptr<const MeasuredOperators> measured_operators(OperatorProfile profile,
                                                            const std::string& where);

/// A Profile that holds the operators and no scheme yet: what load_profile() gives.
Profile operator_profile(std::shared_ptr<const MeasuredOperators> operators);

/// Times of every scheme that the cluster can hold (all recomputations), put together from the
/// operators' fits: each part of a stage is worked out over a grid of micro-batches inside the
/// measured range and written as a·Σs² + b·Σs + c by non-negative least squares of the relative
/// error. Tensor-parallel collectives count in full, ring steps where they take longer than the
/// attention beside them. Groups nobody measured take the cluster's links. On a cluster of another
/// device the operators are transferred first (see transfer_operators). Throws InputError when
/// products or attention were not measured at all.
Profile compose_profile(std::shared_ptr<const MeasuredOperators> operators, const ModelSpec& model,
                        const ClusterSpec& cluster);

/// The operators of a device that nobody has measured, from its data sheet and the efficiency of
/// the measured one: products and attention in proportion to the peak rates, row-wise kernels to
/// the memory bandwidths; the same share of each at every size. Communication is left to the
/// cluster's links. Needs both ceilings in the measured machine's description, else returns
/// nothing.
std::shared_ptr<const MeasuredOperators> transfer_operators(const MeasuredOperators& operators,
                                                            const ClusterSpec& cluster);

/// How a cost is changed to ask what if: of latencies, and of the time that bytes take.
struct TrafficScale {
  double latency = 1;
  double bandwidth = 1;
};

/// Seconds of `count` messages, one after the other and `bytes` long together, between devices of
/// one node or, `across`, of two: from the measured curve, else from the cluster's link.
double message_seconds(const MeasuredOperators& operators, const ClusterSpec& cluster, double count,
                       double bytes, bool across, const TrafficScale& scale);

/// Seconds of an all-reduce of a few bytes over all devices.
double barrier_seconds(const MeasuredOperators& operators, const ClusterSpec& cluster, int devices,
                       const TrafficScale& scale);

/// Seconds of work on flat memory, nothing where it was not measured: a copy inside the device,
/// adding gradients to their sums, squaring them, the optimizer's step.
double copy_seconds(const MeasuredOperators& operators, double bytes);
double add_seconds(const MeasuredOperators& operators, double elements);
double sum_squares_seconds(const MeasuredOperators& operators, double elements);
double optimizer_seconds(const MeasuredOperators& operators, double elements);

}  // namespace hydraulis
