#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "kernels/compute.h"
#include "planner/program/lower.h"
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

inline Program lowered(const BatchPlan& plan, const DecoderSpec& decoder, const Layout& layout,
                       int devices) {
  CostModel model;
  model.model = decoder.shape;
  model.cluster.nodes = 1;
  model.cluster.devices_per_node = devices;
  model.optimizer = layout.optimizer;
  if (model.optimizer.devices() == 1) model.optimizer.dp = devices;
  return lower(plan, model);
}

inline TokenSource token_source(const Program& program, const Documents& documents) {
  return [&program, &documents](int pipeline, int micro_batch) {
    const MicroBatch& batch = program.pipelines[pipeline].micro_batches[micro_batch];
    MicroBatchTokens tokens;
    tokens.lengths = batch.lengths;
    for (const std::uint64_t id : batch.sequence_ids) {
      tokens.ids.insert(tokens.ids.end(), documents[id].begin(), documents[id].end());
    }
    tokens.targets = next_token_targets(tokens.lengths, tokens.ids);
    return tokens;
  };
}

/// The ranks of this job, or this rank alone as the single device to compare with.
class Trainee {
 public:
  Trainee(Communicator& world, DataType type, const DecoderSpec& decoder,
          const OptimizerLayout& optimizer, std::uint64_t seed = 7)
      : compute_(make_cpu_compute(*mpi_process().device)),
        backend_{mpi_process().device.get(), compute_.get(), &world, type},
        decoder_(decoder),
        shard_(backend_, decoder, optimizer),
        executor_(backend_, decoder, shard_) {
    shard_.initialise(seed);
  }

  StepOutcome step(const Documents& documents, const Layout& layout, UpdateSettings settings) {
    const Program program =
        lowered(deal(documents, layout), decoder_, layout_with(layout), backend_.world->size());
    settings.update = ++updates_;
    return train_step(backend_, executor_, shard_, program, token_source(program, documents),
                      settings, {}, &mine_);
  }
  StepOutcome evaluate(const Documents& documents, const Layout& layout) {
    const Program program =
        lowered(deal(documents, layout), decoder_, layout_with(layout), backend_.world->size());
    ExecuteOptions options;
    options.keep_token_losses = true;
    mine_ = executor_.evaluate(program, token_source(program, documents), options);
    return global_loss(backend_, mine_);
  }

  /// Every tensor whole, by name, in layout order.
  std::map<std::string, std::vector<double>> tensors(Matrix of) {
    std::map<std::string, std::vector<double>> result;
    const std::unique_ptr<Stream> stream = backend_.device->make_stream();
    for (const LogicalTensor& tensor : logical_tensors(decoder_.shape)) {
      std::vector<double>& values = result[tensor.name];
      values.assign(tensor.elements(), 0.0);
      for (const OwnedRange& range : shard_.ranges()) {
        if (range.layer != tensor.layer || range.kind != tensor.kind) continue;
        const std::vector<double> part = shard_.to_host(of, range);
        std::copy(part.begin(), part.end(), values.begin() + range.begin);
      }
      backend_.world->all_reduce(values.data(), static_cast<std::int64_t>(values.size()),
                                 DataType::f64, Reduction::sum, *stream);
      backend_.device->synchronize(*stream);
    }
    return result;
  }
  std::map<std::string, std::vector<double>> parameters() { return tensors(shard_.parameters()); }
  std::map<std::string, std::vector<double>> gradients() { return tensors(shard_.gradients()); }

  const Backend& backend() const { return backend_; }
  OptimizerShard& shard() { return shard_; }
  Executor& executor() { return executor_; }
  const IterationOutcome& mine() const { return mine_; }

 private:
  Layout layout_with(Layout layout) const {
    layout.optimizer = shard_.layout();
    return layout;
  }
  std::unique_ptr<Compute> compute_;
  Backend backend_;
  DecoderSpec decoder_;
  OptimizerShard shard_;
  Executor executor_;
  IterationOutcome mine_;
  std::int64_t updates_ = 0;
};

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
