#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "kernels/compute.h"
#include "planner/program/lower.h"
#include "runtime/agreement.h"
#include "runtime/train_step.h"
#include "tests/mpi_process.h"

namespace hydraulis::test {

/// A decoder small enough to train in milliseconds, awkward enough to find mistakes: a vocabulary
/// that no tp divides, fewer key/value heads than tp = 4, feed-forward channels that 4 and 8 divide
/// unevenly.
inline DecoderSpec small_decoder() {
  DecoderSpec decoder;
  decoder.shape = {"small", 4, 32, 42, 8, 2, 4, 97, false, false, false};
  decoder.initializer_range = 0.1;
  return decoder;
}

using Documents = std::vector<std::vector<std::int32_t>>;

inline Documents random_documents(const std::vector<int>& lengths, int vocabulary,
                                  std::uint64_t seed) {
  Random random(seed);
  Documents documents;
  for (const int length : lengths) {
    std::vector<std::int32_t>& ids = documents.emplace_back(length);
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random.below(vocabulary));
  }
  return documents;
}

/// How a batch's documents are laid over a strategy: `micro_batches` of each pipeline, documents
/// dealt out in turn.
struct Layout {
  std::vector<Scheme> schemes;
  int micro_batches = 1;
  OptimizerLayout optimizer;  ///< devices() 1: dp over all ranks
};

inline Scheme scheme(int cp, int tp, int pp, Recompute recompute = Recompute::none) {
  Scheme result;
  result.cp = cp;
  result.tp = tp;
  result.pp = pp;
  result.recompute = recompute;
  return result;
}

inline int devices_of(const Layout& layout) {
  int devices = 0;
  for (const Scheme& s : layout.schemes) devices += s.devices();
  return devices;
}

inline BatchPlan deal(const Documents& documents, const Layout& layout) {
  BatchPlan plan;
  for (const Scheme& s : layout.schemes) {
    plan.pipelines.push_back({s, std::vector<MicroBatch>(layout.micro_batches), 0});
  }
  for (std::size_t i = 0; i < documents.size(); ++i) {
    PipelinePlan& pipeline = plan.pipelines[i % plan.pipelines.size()];
    MicroBatch& batch =
        pipeline.micro_batches[i / plan.pipelines.size() % pipeline.micro_batches.size()];
    batch.sequence_ids.push_back(i);
    batch.lengths.push_back(static_cast<std::uint32_t>(documents[i].size()));
  }
  for (PipelinePlan& pipeline : plan.pipelines) {
    std::erase_if(pipeline.micro_batches,
                  [](const MicroBatch& batch) { return batch.sequence_ids.empty(); });
  }
  return plan;
}

/// A batch with its assignment given: by pipeline the schemes, by micro-batch the documents.
struct Assigned {
  Scheme scheme;
  std::vector<std::vector<std::uint64_t>> micro_batches;
  int phase = 0;
};

inline BatchPlan assign(const Documents& documents, const std::vector<Assigned>& pipelines) {
  BatchPlan plan;
  for (const Assigned& assigned : pipelines) {
    PipelinePlan& pipeline = plan.pipelines.emplace_back();
    pipeline.scheme = assigned.scheme;
    pipeline.phase = assigned.phase;
    for (const std::vector<std::uint64_t>& ids : assigned.micro_batches) {
      MicroBatch& batch = pipeline.micro_batches.emplace_back();
      batch.sequence_ids = ids;
      for (const std::uint64_t id : ids) {
        batch.lengths.push_back(static_cast<std::uint32_t>(documents[id].size()));
      }
    }
  }
  return plan;
}

/// The optimizer layout of a test: dp over all ranks unless the layout names another.
inline OptimizerLayout optimizer_for(const Layout& layout, int devices) {
  OptimizerLayout optimizer = layout.optimizer;
  if (optimizer.devices() == 1) optimizer.dp = devices;
  return optimizer;
}

inline Program lowered(const BatchPlan& plan, const DecoderSpec& decoder,
                       const OptimizerLayout& optimizer, int devices) {
  CostModel model;
  model.model = decoder.shape;
  model.cluster.nodes = 1;
  model.cluster.devices_per_node = devices;
  model.optimizer = optimizer;
  return lower(plan, model);
}

/// By document, which tokens may be predicted; empty for all.
using LossMasks = std::vector<std::vector<std::uint8_t>>;

inline TokenSource token_source(const Program& program, const Documents& documents,
                                const LossMasks& masks = {}) {
  return [&program, &documents, &masks](int pipeline, int micro_batch) {
    const MicroBatch& batch = program.pipelines[pipeline].micro_batches[micro_batch];
    MicroBatchTokens tokens;
    tokens.lengths = batch.lengths;
    std::vector<std::uint8_t> mask;
    for (const std::uint64_t id : batch.sequence_ids) {
      tokens.ids.insert(tokens.ids.end(), documents[id].begin(), documents[id].end());
      if (!masks.empty()) mask.insert(mask.end(), masks[id].begin(), masks[id].end());
    }
    tokens.targets = next_token_targets(tokens.lengths, tokens.ids, mask);
    return tokens;
  };
}

/// The ranks of this job, or this rank alone as the single device to compare with.
class Trainee {
 public:
  Trainee(Communicator& world, DataType type, const DecoderSpec& decoder,
          const OptimizerLayout& optimizer, std::uint64_t seed = 7)
      : Trainee({mpi_process().device.get(), nullptr, &world, type}, decoder, optimizer, seed) {}
  /// On a backend without kernels those of the CPU.
  Trainee(const Backend& backend, const DecoderSpec& decoder, const OptimizerLayout& optimizer,
          std::uint64_t seed = 7, OptimizerStates states = OptimizerStates::device,
          std::int64_t host_bucket = kHostBucketElements)
      : compute_(backend.compute != nullptr ? nullptr : make_cpu_compute(*backend.device)),
        backend_(backend.compute != nullptr ? backend : with(backend, *compute_)),
        decoder_(decoder),
        shard_(backend_, decoder, optimizer, states, host_bucket),
        executor_(backend_, decoder, shard_) {
    shard_.initialise(seed);
  }

  StepOutcome step(const Documents& documents, const Layout& layout, UpdateSettings settings) {
    return step(documents, deal(documents, layout), settings);
  }
  StepOutcome step(const Documents& documents, const BatchPlan& plan, UpdateSettings settings) {
    const Program program = program_of(plan);
    settings.update = ++updates_;
    return train_step(backend_, executor_, shard_, program, token_source(program, documents),
                      settings, {}, &mine_);
  }
  /// Updates that a checkpoint has behind it.
  void skip_updates(std::int64_t count) { updates_ = count; }
  /// Forward and backward without an update: gradients() are then of the summed loss.
  StepOutcome accumulate(const Documents& documents, const BatchPlan& plan,
                         const LossMasks& masks = {}) {
    const Program program = program_of(plan);
    mine_ = executor_.run(program, token_source(program, documents, masks));
    return global_loss(backend_, mine_);
  }
  /// Forward only.
  StepOutcome evaluate(const Documents& documents, const BatchPlan& plan,
                       const LossMasks& masks = {}) {
    const Program program = program_of(plan);
    mine_ = executor_.evaluate(program, token_source(program, documents, masks));
    return global_loss(backend_, mine_);
  }
  /// Losses by document and token as all ranks counted them; NaN where a token has no target. A
  /// target that two ranks counted fails the test.
  std::vector<std::vector<double>> token_losses(const Documents& documents, const BatchPlan& plan) {
    const Program program = program_of(plan);
    ExecuteOptions options;
    options.keep_token_losses = true;
    mine_ = executor_.evaluate(program, token_source(program, documents), options);
    std::vector<std::vector<double>> losses;
    std::vector<std::vector<double>> counts;
    for (const auto& document : documents) {
      losses.emplace_back(document.size(), 0.0);
      counts.emplace_back(document.size(), 0.0);
    }
    for (const auto& [place, values] : mine_.token_losses) {
      const auto [pipeline, micro_batch] = place;
      std::size_t next = 0;
      for (const std::uint64_t id :
           program.pipelines[pipeline].micro_batches[micro_batch].sequence_ids) {
        for (std::size_t i = 0; i < documents[id].size(); ++i) {
          const double value = values.at(next++);
          if (std::isnan(value)) continue;
          losses[id][i] += value;
          counts[id][i] += 1;
        }
      }
    }
    for (std::size_t id = 0; id < documents.size(); ++id) {
      sum_over_ranks(losses[id]);
      sum_over_ranks(counts[id]);
      for (std::size_t i = 0; i < losses[id].size(); ++i) {
        EXPECT_LE(counts[id][i], 1) << "token " << i << " of document " << id;
        if (counts[id][i] == 0) losses[id][i] = std::numeric_limits<double>::quiet_NaN();
      }
    }
    return losses;
  }

  /// Every tensor whole, by name, in layout order.
  std::map<std::string, std::vector<double>> tensors(Matrix of) {
    std::map<std::string, std::vector<double>> result;
    for (const LogicalTensor& tensor : logical_tensors(decoder_.shape)) {
      std::vector<double>& values = result[tensor.name];
      values.assign(tensor.elements(), 0.0);
      for (const OwnedRange& range : shard_.ranges()) {
        if (range.layer != tensor.layer || range.kind != tensor.kind) continue;
        const std::vector<double> part = shard_.to_host(of, range);
        std::copy(part.begin(), part.end(), values.begin() + range.begin);
      }
      sum_over_ranks(values);
    }
    return result;
  }
  /// Weights by name, numbered as in files (rows first).
  void load(const std::map<std::string, std::vector<double>>& weights) {
    for (const LogicalTensor& tensor : logical_tensors(decoder_.shape)) {
      const std::vector<double> values = in_layout_order(tensor, weights.at(tensor.name));
      for (const OwnedRange& range : shard_.ranges()) {
        if (range.layer != tensor.layer || range.kind != tensor.kind) continue;
        shard_.from_host(shard_.parameters(), range,
                         {values.begin() + range.begin, values.begin() + range.end});
      }
    }
  }
  /// A tensor's elements of a file in the order that layouts number them.
  static std::vector<double> in_layout_order(const LogicalTensor& tensor,
                                             const std::vector<double>& rows_first) {
    if (!tensor.transposed) return rows_first;
    const std::int64_t rows = tensor.shape[0];
    const std::int64_t columns = tensor.shape[1];
    std::vector<double> result;
    result.reserve(rows_first.size());
    for (std::int64_t column = 0; column < columns; ++column) {
      for (std::int64_t row = 0; row < rows; ++row) {
        result.push_back(rows_first[row * columns + column]);
      }
    }
    return result;
  }
  std::map<std::string, std::vector<double>> parameters() { return tensors(shard_.parameters()); }
  std::map<std::string, std::vector<double>> gradients() { return tensors(shard_.gradients()); }

  const Backend& backend() const { return backend_; }
  OptimizerShard& shard() { return shard_; }
  Executor& executor() { return executor_; }
  const IterationOutcome& mine() const { return mine_; }
  Program program_of(const BatchPlan& plan) const {
    return lowered(plan, decoder_, shard_.layout(), backend_.world->size());
  }
  /// In place.
  void sum_over_ranks(std::vector<double>& values) const {
    hydraulis::sum_over_ranks(backend_, values);
  }

 private:
  static Backend with(Backend backend, Compute& compute) {
    backend.compute = &compute;
    return backend;
  }
  std::unique_ptr<Compute> compute_;
  Backend backend_;
  DecoderSpec decoder_;
  OptimizerShard shard_;
  Executor executor_;
  IterationOutcome mine_;
  std::int64_t updates_ = 0;
};

/// This rank alone: the single device that every layout must agree with.
inline Communicator& alone() {
  static const std::unique_ptr<Communicator> self = [] {
    const int rank = mpi_process().world->rank();
    return mpi_process().world->subgroup({&rank, 1});
  }();
  return *self;
}

/// Layouts that use just as many ranks as there are, by name; tests are made for these alone.
struct NamedLayout {
  std::string name;
  Layout layout;
};
inline std::vector<NamedLayout> layouts_here(const std::vector<NamedLayout>& all) {
  std::vector<NamedLayout> here;
  for (const NamedLayout& named : all) {
    if (devices_of(named.layout) == mpi_process().world->size()) here.push_back(named);
  }
  return here;
}
inline std::string layout_name(const testing::TestParamInfo<NamedLayout>& test) {
  return test.param.name;
}
inline void PrintTo(const NamedLayout& named, std::ostream* out) { *out << named.name; }

/// ‖a − b‖ / ‖b‖.
inline double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

}  // namespace hydraulis::test
