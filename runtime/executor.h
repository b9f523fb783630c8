#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "planner/program/program.h"
#include "runtime/iteration.h"
#include "runtime/parameter_flow.h"
#include "runtime/process_groups.h"
#include "runtime/rank_stage.h"

namespace hydraulis {

/// Runs the programs of a training run on one rank (device `rank` of every program): phase after
/// phase the streams of its stage, instruction by instruction, communication beside computation.
/// Between phases parameters move to the next layout, and gradients home unless they stay for the
/// next phase. Strategies that come back find their transfers and groups made.
class Executor {
 public:
  Executor(const Backend& backend, const DecoderSpec& decoder, OptimizerShard& shard);

  /// Forward and backward of every micro-batch, parameters gathered before and gradients reduced
  /// into the shard after: Σ over all targets of all pipelines, not yet divided by their number.
  /// Throws CommunicationError, naming instruction and stage, when a peer does not answer.
  IterationOutcome run(const Program& program, const TokenSource& tokens,
                       const ExecuteOptions& options = {});
  /// Forward only: losses without gradients.
  IterationOutcome evaluate(const Program& program, const TokenSource& tokens,
                            const ExecuteOptions& options = {});

  /// Elements of parameters this rank's stage holds for the last phase of the last program.
  std::int64_t stage_elements() const;

 private:
  IterationOutcome execute(const Program& program, const TokenSource& tokens,
                           const ExecuteOptions& options, bool backwards);
  void check(const Program& program) const;
  const std::vector<PhaseTransfers>& transfers_for(const Program& program);
  std::unique_ptr<ParameterFlow> enter(const Program& program, int phase,
                                       const PhaseTransfers& moved, int iteration);
  void meet(const Program& program, int number, const ExecuteOptions& options,
            IterationOutcome& outcome);

  Backend backend_;
  DecoderSpec decoder_;
  OptimizerShard& shard_;
  ProcessGroups groups_;
  RankStreams streams_;
  std::map<std::string, std::vector<PhaseTransfers>> transfers_;  ///< by the program's layouts
  RankStage here_;
  std::string held_;  ///< held_parameters() of here_
};

}  // namespace hydraulis
