#pragma once

#include <string>
#include <vector>

#include "costmodel/cost_model.h"
#include "planner/program/program.h"
#include "traces/sampler.h"

namespace hydraulis {

/// Checks a program without trusting the code that lowered it. Returns what is wrong, one line a
/// problem, nothing when all is well:
///   - places: every stage has tp·cp devices of the cluster, no device serves twice in a phase;
///   - layers: each pipeline has every layer, the embedding and the head once, gathers all of them
///     before the first forward and reduces each once after the last backward; with sharded
///     parameters in every pass and every backward of its phase's longest pipeline;
///   - work: each stage runs every micro-batch's forward and backward once, in that order, and
///     waits for what it uses;
///   - messages: every send has its receive (micro-batch, bytes and order alike);
///   - deadlock: run under rendezvous semantics (a send ends when its receive runs, a collective
///     when all stages have come), everything ends; otherwise it lists who waits for whom;
///   - communicators: one launch order of collectives fits every stage;
///   - memory: the tokens alive at each stage fit the cost model's limit;
///   - sequences, with a batch: each of its ids once, with its length.
std::vector<std::string> verify(const Program& program, const CostModel& model,
                                const Batch* batch = nullptr);
/// The same without memory, for programs that have run.
std::vector<std::string> verify(const Program& program);

namespace detail {

/// Collects problems; a broken program may have very many, of which the first hundred are kept.
class Problems {
 public:
  void add(std::string problem);
  bool empty() const { return lines_.empty(); }
  std::vector<std::string> take();

 private:
  std::vector<std::string> lines_;
  std::size_t left_out_ = 0;
};

/// "stage 3 (pipeline 1): send_gradient of micro-batch 2 [instruction 17]".
std::string describe(const Program& program, int stage, int instruction);

/// Places, references and layers; when this finds a problem the other checks do not run.
void verify_structure(const Program& program, Problems& problems);
void verify_layers(const Program& program, Problems& problems);
void verify_work(const Program& program, Problems& problems);
void verify_messages(const Program& program, Problems& problems);
void verify_progress(const Program& program, Problems& problems);
void verify_launch_order(const Program& program, Problems& problems);
void verify_memory(const Program& program, const CostModel& model, Problems& problems);
void verify_sequences(const Program& program, const Batch& batch, Problems& problems);

}  // namespace detail
}  // namespace hydraulis
