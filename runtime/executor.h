#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "planner/program/program.h"
#include "planner/program/timeline.h"
#include "runtime/parameter_flow.h"
#include "runtime/process_groups.h"
#include "runtime/stage_model.h"

namespace hydraulis {

/// What one rank saw of one iteration's forwards and backwards; sums are this rank's alone.
struct IterationOutcome {
  double loss_sum = 0;
  std::int64_t targets = 0;
  /// Of this rank's pipeline, by micro-batch; filled when asked for.
  std::map<int, std::vector<double>> token_losses;
  std::chrono::steady_clock::time_point began;  ///< on this rank
  std::vector<TimelineEvent> events;            ///< seconds since then
};

/// Tokens of one micro-batch of a pipeline of the program.
using TokenSource = std::function<MicroBatchTokens(int pipeline, int micro_batch)>;

struct ExecuteOptions {
  bool keep_token_losses = false;
  bool record_events = false;
  int iteration = 0;  ///< written into events and error messages
};

/// Runs the programs of a training run on one rank (device `rank` of every program): the streams of
/// its stage, instruction by instruction, communication beside computation. Strategies that come
/// back find their transfers and groups made.
class Executor {
 public:
  Executor(const Backend& backend, const DecoderSpec& decoder, OptimizerShard& shard);
  ~Executor();

  /// Forward and backward of every micro-batch, parameters gathered before and gradients reduced
  /// into the shard after: Σ over all targets of all pipelines, not yet divided by their number.
  /// Throws CommunicationError, naming instruction and stage, when a peer does not answer.
  IterationOutcome run(const Program& program, const TokenSource& tokens,
                       const ExecuteOptions& options = {});
  /// Forward only: losses without gradients.
  IterationOutcome evaluate(const Program& program, const TokenSource& tokens,
                            const ExecuteOptions& options = {});

  /// Elements of parameters this rank's stage holds for the last program.
  std::int64_t stage_elements() const;

 private:
  struct Layout;
  class Run;
  Stream& stream(StreamKind kind) const {
    return kind == StreamKind::compute ? *compute_ : *streams_[static_cast<int>(kind)];
  }
  Layout& layout_for(const Program& program);
  IterationOutcome execute(const Program& program, const TokenSource& tokens,
                           const ExecuteOptions& options, bool backwards);

  Backend backend_;
  DecoderSpec decoder_;
  OptimizerShard& shard_;
  ProcessGroups groups_;
  std::map<std::string, RankTransfers> transfers_;  ///< by the program's layout
  std::unique_ptr<Layout> layout_;
  ComputeStream compute_;
  std::vector<std::unique_ptr<Stream>> streams_;  ///< by StreamKind, all but the computing one
  std::unique_ptr<Stream> ring_;
};

}  // namespace hydraulis
