#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "costmodel/cost_model.h"
#include "planner/assignment.h"
#include "sim/iterations.h"
#include "sim/tune_time.h"

namespace hydraulis {

/// How carefully a cell is planned: `quick` without local search, `full` as `assign` plans.
enum class TuneEffort { none, quick, full };

/// One strategy on one batch. An iteration on a strategy does not depend on the other strategies of
/// a set, nor on the iteration before it (parameters always come from the optimizer layout), so
/// what a set does on a batch is the cell that the planner would choose.
struct TuneCell {
  TuneEffort effort = TuneEffort::none;
  bool looked_at = false;  ///< planned and simulated, not only bounded
  double bound = 0;        ///< seconds, makespan plus parameter traffic; infinity: does not hold it
  double planned = 0;      ///< the same of the plan; what the planner chooses by
  double simulated = 0;    ///< seconds of the iteration; infinity: out of memory
  double memory_bytes = 0;  ///< highest mark of any device
  IterationResult result;   ///< of looked-at cells
  TimeShares time;          ///< of looked-at cells
};

/// What cells are planned and simulated with.
struct TuneGround {
  CostModel model;               ///< with the optimizer layout
  AssignmentOptions assignment;  ///< with the cap on a micro-batch
  IterationOptions iteration;
};

/// Strategies × batches. Every candidate sees the same batches (common random numbers).
class TuneTable {
 public:
  /// `batches` must outlive the table.
  TuneTable(TuneGround ground, std::span<const std::vector<Sequence>> batches, int threads);

  /// The strategy's index; the same pipelines in another order are the same strategy.
  int add(const Strategy& strategy);
  std::size_t strategies() const { return full_.strategies.size(); }
  std::size_t batches() const { return batches_.size(); }
  /// The plan of a cell that is exact(), made again.
  BatchPlan plan(int strategy, std::size_t batch) const;
  const Strategy& strategy(int index) const {
    return full_.strategies[static_cast<std::size_t>(index)];
  }
  /// Whether some pipeline holds a sequence of so many tokens.
  bool holds(int index, std::int64_t tokens) const;
  const TuneGround& ground() const { return ground_; }

  /// Fills the cells of these strategies on the first `batches` batches. Only cells that matter are
  /// planned: at quick effort those whose lower bound, at full effort those whose quick plan comes
  /// near the best plan known for the batch. What is only bounded counts with a guess well above
  /// its bound.
  void evaluate(std::span<const int> strategies, std::size_t batches, TuneEffort effort);
  /// Fills what it takes for chosen_strategy() to be what assign() chooses from the set, at full
  /// effort.
  void settle(std::span<const int> set, std::size_t batches);
  const TuneCell& cell(int strategy, std::size_t batch) const {
    return cells_[static_cast<std::size_t>(strategy)][batch];
  }
  /// Whether a cell is what `assign` and `simulate` make of it.
  bool exact(int strategy, std::size_t batch) const {
    const TuneCell& at = cell(strategy, batch);
    return at.looked_at && at.effort == TuneEffort::full;
  }
  /// Cells planned and simulated so far.
  std::uint64_t simulated() const { return simulated_; }

 private:
  BatchPlan planned(const PreparedStrategies& prepared, int strategy, std::size_t batch) const;
  void bound(int strategy, std::size_t batch);
  bool fill(int strategy, std::size_t batch, TuneEffort effort);

  TuneGround ground_;
  std::span<const std::vector<Sequence>> batches_;
  int threads_;
  PreparedStrategies quick_;
  PreparedStrategies full_;
  std::map<Strategy, int> known_;             ///< pipelines sorted
  std::vector<std::vector<TuneCell>> cells_;  ///< [strategy][batch]
  std::vector<double> best_;                  ///< by batch: least planned seconds seen
  std::uint64_t simulated_ = 0;
};

}  // namespace hydraulis
