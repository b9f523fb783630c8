#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/iteration.h"
#include "runtime/rank_stage.h"

namespace hydraulis {

/// What a phase is executed with on one rank; all of it must outlive the run.
struct StageRunSetup {
  const Backend* backend = nullptr;
  const DecoderSpec* decoder = nullptr;
  const RankStreams* streams = nullptr;
  const Program* program = nullptr;
  const TokenSource* tokens = nullptr;
  const ExecuteOptions* options = nullptr;
  bool backwards = true;
  bool clear_gradients = true;  ///< false: they are added to what the phase before left
};

/// One phase of one iteration on one rank: the instruction streams of its stage.
class StageRun {
 public:
  using Clock = std::chrono::steady_clock;

  /// `here.stage` −1: this rank only gives and takes parameters and gradients.
  StageRun(const StageRunSetup& setup, RankStage& here, ParameterFlow& flow,
           IterationOutcome& outcome);

  /// `started`: when the parameters' transfers were, seconds since the iteration began.
  void run(double started);

 private:
  struct State {
    bool started = false;
    bool done = false;
    std::shared_ptr<Event> event;  ///< of a communication still on its way
    double start = 0;
    double end = 0;
  };

  double now() const;
  int rank_of_peer(int stage) const { return program_.stages[stage].devices[here_.index]; }

  void prepare();
  void plan_instructions();
  void finish_at_once(std::size_t i) { states_[i].started = states_[i].done = true; }
  void execute_all();
  bool done(int i);
  bool ready(int i);
  bool poll();
  void start(int i);
  void receive(int i, Tensor& into, Channel channel);
  void send(int i, Tensor tensor, Channel channel);
  void communicate(int i, const Message& message, Channel channel);
  void complete(int layer);
  void finish(int i, double waited_seconds = 0);

  void record(int i);
  void record_reshards(double started, double reduced);

  std::string describe(Op op) const;
  std::string describe(int i) const;
  std::string stuck(const std::vector<std::size_t>& heads) const;
  /// Does `work`; what fails in it names the step, the rank and the instruction.
  template <typename Work>
  void naming(int i, const Work& work) const;
  /// What belongs to all instructions of this kind together names the first.
  template <typename Work>
  void naming(Op op, const Work& work) const;

  Stream& stream_of(int i) const { return streams_.of(stage_->instructions[i].stream); }

  const Backend& backend_;
  const DecoderSpec& decoder_;
  const RankStreams& streams_;
  const Program& program_;
  const TokenSource& tokens_;
  const ExecuteOptions& options_;
  const bool backwards_;
  const bool clear_gradients_;
  Device& device_;
  Communicator& world_;
  Stream& compute_;
  RankStage& here_;
  ParameterFlow& flow_;
  IterationOutcome& outcome_;
  const Stage* stage_ = nullptr;
  double device_clock_ = 0;           ///< of the device's events when the iteration began
  double waited_for_parameters_ = 0;  ///< seconds, in the forward under way
  int last_backward_ = -1;
  std::vector<State> states_;
  std::vector<std::vector<int>> queues_;  ///< instructions by StreamKind
  std::vector<int> under_way_;            ///< communications
  std::map<int, Tensor> activations_in_;
  std::map<int, Tensor> activations_out_;
  std::map<int, Tensor> gradients_in_;
  std::map<int, Tensor> gradients_out_;
  std::vector<std::pair<int, Tensor>> leaving_;  ///< sends under way, with what they send
  std::map<int, double> reduction_start_;
};

}  // namespace hydraulis
