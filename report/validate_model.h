#pragma once

#include "costmodel/public_parameters.h"
#include "report/validate_rows.h"

namespace hydraulis {

/// What one device does for the layers, or for the embedding and the head, of one micro-batch:
/// forward, recomputation and backward, summed over the typed operations of planner/program/expand.
struct PublicWork {
  double gemm_seconds = 0;        ///< at peak
  double operand_seconds = 0;     ///< operands and results at memory bandwidth
  double odd_gemm_seconds = 0;    ///< with an odd vocabulary, at peak
  double attention_seconds = 0;   ///< fused, causal, at peak
  double element_seconds = 0;     ///< at memory bandwidth
  double launches = 0;            ///< layers' forwards; a backward is two
  double collective_seconds = 0;  ///< in the node, by the all-reduce curve
  double inter_node_seconds = 0;  ///< at the node's bandwidth
};

/// A row's work, independent of the parameters.
struct PublicRowWork {
  PublicWork layer;   ///< one layer
  PublicWork ends;    ///< embedding and head
  double layers = 0;  ///< of a stage
  double micro_batches = 0;
  double bubble = 0;          ///< stages' times beside the micro-batches: (pp − 1) / interleave
  double transfer_bytes = 0;  ///< a micro-batch and stage, both directions
  PublicWork reduction;       ///< of gradients (and parameters' gather) after the last backward
  double optimizer_seconds = 0;  ///< at memory bandwidth
};

PublicRowWork public_work(const PublicRow& row, const PublicDevice& device);

/// Seconds of the iteration: (micro-batches + bubble)·stage + micro-batches·ends + reduction +
/// step. A layer takes the smooth maximum (cubes) of its kernels and their launches, and then its
/// collectives.
double predicted_seconds(const PublicRowWork& work, const PublicValues& values);

/// Bytes allocated at most on a device of the first or of the last stage (1F1B): parameters,
/// gradients and optimizer states, activations in flight, copies of one layer, logits.
double predicted_bytes(const PublicRow& row, const PublicDevice& device,
                       const PublicValues& values);

/// The model with the device's vocabulary where the row has none, padded for tensor parallelism.
ModelSpec public_model(const PublicRow& row, const PublicDevice& device);

/// Seconds by the one-line formula at full efficiency: FLOPs (those of full recomputation included)
/// over devices and peak, times the pipeline's bubble.
double formula_seconds(const PublicRow& row, const PublicDevice& device);

}  // namespace hydraulis
