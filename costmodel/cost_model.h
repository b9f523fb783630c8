#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/cluster_spec.h"
#include "costmodel/model_spec.h"
#include "costmodel/profile.h"
#include "costmodel/scheme.h"

namespace hydraulis {

/// Share of a stage's time that is forward; the rest is backward (which costs twice the forward's
/// matrix products), as schedules count it. Whole-stage profiles do not tell them apart.
inline constexpr double kForwardShare = 1.0 / 3.0;

/// The one fixed layout of optimizer states and fp32 master parameters over all devices.
struct OptimizerLayout {
  int dp = 1;
  int tp = 1;
  int pp = 1;
  int devices() const { return dp * tp * pp; }
};

/// `published`: the authors' formula (pp micro-batches alive, no logits). `composed`: what is
/// really alive at each stage of the 1F1B schedule, logits and buffers included.
enum class MemoryModel { published, composed };

/// Bytes on one device of a stage, by kind.
struct StageMemory {
  double optimizer = 0;    ///< optimizer states and fp32 master parameters (fixed layout)
  double parameters = 0;   ///< bf16 parameters in the strategy's layout
  double gradients = 0;    ///< gradients in the strategy's layout
  double activations = 0;  ///< of the tokens in flight
  double logits = 0;       ///< last stage only
  double buffers = 0;      ///< communication buffers
  double constant = 0;     ///< measured constant: context, workspace, fragmentation
  double total() const {
    return optimizer + parameters + gradients + activations + logits + buffers + constant;
  }
};

/// Bytes of a number in each role of training. The default is mixed precision: bf16 parameters,
/// gradients and activations, fp32 masters with two moments and fp32 logits.
struct NumberBytes {
  double parameter = 2;
  double gradient = 2;
  double activation = 2;
  double logit = 4;
  double optimizer = 12;  ///< of a parameter in the fixed layout
};

/// Training in one width from 4 bytes on: parameters, gradients and logits as wide as activations,
/// the master, gradient and two moments of an element in the fixed layout. Below, the default.
NumberBytes number_bytes(int element_bytes);

/// Where parameters and gradients are between their uses. `replicated`: every pipeline keeps its
/// own for the iteration, optimizer states are split over all devices (ZeRO-1). `sharded`: they are
/// split as well and gathered layer by layer in every pass of every micro-batch (ZeRO-3, fully
/// sharded data parallelism); such programs have no tensor or pipeline parallelism.
enum class ParameterSharding : std::uint8_t { replicated, sharded };

/// Where the optimizer's fp32 masters and moments are and who updates them: the devices, or their
/// nodes' memory and processors (costmodel/host_states.h).
enum class OptimizerStates : std::uint8_t { device, host };

/// How context parallelism computes attention: keys and values go round a ring, or all-to-alls turn
/// shares of the tokens into shares of the heads and back (Ulysses).
enum class ContextExchange : std::uint8_t { ring, all_to_all };

/// Everything that turns a scheme and a micro-batch into seconds and bytes. Plain data, made once.
struct CostModel {
  ModelSpec model;
  ClusterSpec cluster;
  Profile profile;
  MemoryModel memory = MemoryModel::published;
  OptimizerLayout optimizer;
  NumberBytes numbers;  ///< of the composed memory model
  ParameterSharding sharding = ParameterSharding::replicated;
  ContextExchange context_exchange = ContextExchange::ring;
  OptimizerStates states = OptimizerStates::device;
};

/// Schemes the cost model has times for and that this cluster can hold at all (devices() at most
/// its node group's), whether or not a single token fits; in the profile's order, group by group.
std::vector<Scheme> known_schemes(const CostModel& model);

/// Time coefficients of one stage of a scheme, forward and backward together, or nothing when the
/// profile does not know it. Where the profile knows a stage's parts, a stage has the time of its
/// own layers and the first and last have that of the embedding and the head; else an uneven stage
/// scales with its share of layers. Divided by the relative speed of the scheme's node group.
std::optional<StageCost> stage_cost(const CostModel& model, const Scheme& scheme, int stage);
/// The forward alone, or nothing when the profile does not tell it from the backward.
std::optional<StageCost> forward_cost(const CostModel& model, const Scheme& scheme, int stage);
/// The same two for any run of `layers` layers on the devices of a stage of the scheme, which is
/// what a virtual stage of an interleaved schedule is; `first` has the embedding, `last` the head.
std::optional<StageCost> layers_cost(const CostModel& model, const Scheme& scheme, int layers,
                                     bool first, bool last);
std::optional<StageCost> layers_forward_cost(const CostModel& model, const Scheme& scheme,
                                             int layers, bool first, bool last);

/// One sentence when micro-batches of up to `tokens` tokens or sequences of up to `length` tokens
/// are beyond what the profile's times were measured on, else "". Context parallelism not counted.
std::string beyond_measurements(const CostModel& model, double tokens, double length);

/// The longest micro-batch in tokens (a multiple of 128) that every stage of the scheme can hold
/// with `in_flight` micro-batches alive at its first stage (default: the scheme's own pp, as 1F1B
/// needs); 0 when not even the static part fits. The `published` model ignores `in_flight`.
std::int64_t max_tokens(const CostModel& model, const Scheme& scheme, int in_flight = 0);

/// Bytes per device at one stage with the given tokens alive there. `live_tokens` counts every
/// micro-batch whose forward has run and whose backward has not; `largest_micro_batch` sizes logits
/// and buffers. Composed model.
StageMemory stage_memory(const CostModel& model, const Scheme& scheme, int stage,
                         double live_tokens, double largest_micro_batch);

/// Bytes per device at the scheme's fullest stage when every micro-batch has `tokens` tokens and
/// `in_flight` of them (default pp) are alive at the first stage, by the chosen memory model;
/// infinite where the published model has no constants for the scheme. max_tokens() is the most
/// tokens for which this stays within memory_limit_bytes().
double required_bytes(const CostModel& model, const Scheme& scheme, double tokens,
                      int in_flight = 0);

/// Bytes per device of a node group that a stage may use: the device's memory less the safety
/// margin.
double memory_limit_bytes(const CostModel& model, int group = 0);

}  // namespace hydraulis
