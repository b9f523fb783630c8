#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "runtime/optimizer_shard.h"
#include "runtime/phase_transfers.h"
#include "runtime/stage_parameters.h"

namespace hydraulis {

/// Moves parameters out ahead of a phase's use and gradients back during its last backwards, layer
/// by layer, beside the computation (optimization–propagation disaggregation).
class ParameterFlow {
 public:
  /// `weights` and `gradients` of this rank's stage, or nullptr for a rank without one; gradients
  /// may also come later. All must outlive it, as must `stream`, on which everything moves.
  ParameterFlow(const Backend& backend, OptimizerShard& shard, const PhaseTransfers& transfers,
                Stream& stream, StageParameters* weights, StageParameters* gradients);
  void set_gradients(StageParameters* gradients) { gradients_ = gradients; }

  /// Starts all transfers of parameters from the optimizer's masters, first layers first.
  void start_gather();
  /// The same from what the phase before computed with on this rank, nullptr when that was nothing.
  /// Where it is `weights` itself, this rank has all that it needs and only gives.
  void start_switch(const StageParameters* before);
  /// Later work on `stream` sees the layer's parameters.
  void wait_for_layer(int layer, Stream& stream);
  /// Later work on `stream` may change what this rank gave and what it has taken.
  void wait_for_all(Stream& stream);
  /// When the layer had come, by the device's clock.
  double gathered_seconds(int layer) const;

  /// Gradients of this stage's `layer` are complete: they leave now, as do those that this rank
  /// takes in for other stages' layers above it. Call in descending order of layers.
  void layer_complete(int layer, Stream& compute);
  /// Whatever is left of the reduction; the shard's gradients are whole afterwards.
  void finish_reduction(Stream& compute);

 private:
  struct Incoming {
    const Transfer* transfer;
    DeviceBuffer buffer;
  };
  struct Reduction {
    int layer = 0;
    std::shared_ptr<Event> event;
    std::vector<Incoming> incoming;
  };
  /// Where this rank holds what it gives.
  using Source = std::function<void*(int layer, const Transfer& transfer)>;
  void gather(const Source& source, bool in_place);
  void start_reductions_from(int layer);
  void start_reduction(int layer);
  void add_up(Reduction& reduction, Stream& compute);
  void add_finished(Stream& compute);

  Backend backend_;
  OptimizerShard& shard_;
  const PhaseTransfers& transfers_;
  Stream& stream_;
  StageParameters* weights_;
  StageParameters* gradients_;
  std::map<int, std::shared_ptr<Event>> gathers_;
  std::vector<int> left_;  ///< layers whose reduction has not started, the next one last
  std::vector<Reduction> running_;
  std::size_t first_running_ = 0;
};

}  // namespace hydraulis
