#pragma once

#include <span>

#include "costmodel/cost_model.h"

namespace hydraulis {

/// Adds the ring-attention form of every scheme without context parallelism for each of `degrees`
/// that the profile does not know and the cluster can hold: a cp-th of the work for tokens and
/// squares, the constant as it is, and the ring's traffic over the cluster's links, not overlapped.
/// A note among the profile's limits says so. Profiles composed from operators have their own.
void add_ring_schemes(CostModel& model, std::span<const int> degrees);

/// Adds the recomputing form of every scheme without recomputation that the profile does not know:
/// full, with the forward once more (a third of the time, constants included), and selective, with
/// the norms' outputs and the gated product once more, at the data sheet's memory bandwidth. A note
/// among the profile's limits says so.
void add_recompute_schemes(CostModel& model);

/// Makes a model of sharded parameters out of one with tensor and pipeline parallelism: schemes
/// (cp,1,1) for each of `degrees`, with and without recomputation, times those of the whole model
/// on one device divided by cp (of rings: and their traffic; all-to-alls are instructions of their
/// own), recomputation a third more. One device's times are those of the measured scheme without
/// tensor parallelism, of the most stages where several were measured, for those were measured over
/// the longest sequences. The optimizer layout becomes one share a device, memory the composed
/// model. Throws InfeasibleError when the profile knows no such scheme.
CostModel sharded_model(const CostModel& model, std::span<const int> degrees,
                        ContextExchange exchange);

}  // namespace hydraulis
