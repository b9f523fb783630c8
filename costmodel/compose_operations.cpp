#include "costmodel/compose_operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace hydraulis {
namespace {

std::int64_t divide_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

/// Writes down the work of one device.
class Device {
 public:
  Device(const ModelSpec& model, const Scheme& scheme, const BatchSize& batch, int element_bytes)
      : model_(model),
        scheme_(scheme),
        element_(element_bytes),
        sum_squares_(batch.sum_squares),
        hidden_(model.hidden),
        shard_(divide_up(static_cast<std::int64_t>(std::ceil(batch.tokens)),
                         std::int64_t{scheme.cp} * scheme.tp)),
        rows_(shard_ * scheme.tp),
        heads_(divide_up(model.heads, scheme.tp)),
        kv_heads_(divide_up(model.kv_heads, scheme.tp)),
        queries_(heads_ * model.head_dim),
        keys_(kv_heads_ * model.head_dim),
        channels_(divide_up(model.ffn_hidden, scheme.tp)),
        vocabulary_(divide_up(model.vocab, scheme.tp)) {}

  Work take() { return std::move(work_); }

  void forward_layer() {
    attend();
    gate_up();
    row_split(channels_);
    rows(Kernel::add, shard_, hidden_);
  }

  void backward_layer() {
    restore();
    gather();
    row_split_gradients(channels_);
    rows(Kernel::swiglu_backward, rows_, channels_);
    column_split_gradients(2 * channels_);
    rows(Kernel::rms_norm_backward, shard_, hidden_);
    gather();
    row_split_gradients(queries_);
    ring_backward();
    rotate();
    if (model_.qkv_bias) rows(Kernel::add, rows_, queries_ + 2 * keys_);
    column_split_gradients(queries_ + 2 * keys_);
    rows(Kernel::rms_norm_backward, shard_, hidden_);
  }

  void positions() { rows(Kernel::rotary_table, rows_, model_.head_dim); }

  void embed() {
    rows(Kernel::embedding, rows_, hidden_);
    scatter();
  }
  void embed_backward() {
    gather();
    rows(Kernel::embedding_backward, rows_, hidden_);
  }

  void head() {
    rows(Kernel::rms_norm, shard_, hidden_);
    gather();
    gemm(Kernel::gemm_forward, hidden_, vocabulary_);
    rows(Kernel::cross_entropy_max, rows_, vocabulary_);
    tensor(Collective::all_reduce, rows_ * element_);
    rows(Kernel::cross_entropy_sums, rows_, vocabulary_);
    tensor(Collective::all_reduce, 2 * rows_ * element_);
  }
  void head_backward() {
    rows(Kernel::cross_entropy_backward, rows_, vocabulary_);
    column_split_gradients(vocabulary_);
    rows(Kernel::rms_norm_backward, shard_, hidden_);
  }

 private:
  void rows(Kernel kernel, std::int64_t count, std::int64_t width) {
    KernelUse use;
    use.shape.kernel = kernel;
    use.shape.width = width;
    use.tokens = count;
    work_.kernels.push_back(use);
  }
  void gemm(Kernel kernel, std::int64_t inputs, std::int64_t outputs) {
    KernelUse use;
    use.shape.kernel = kernel;
    use.shape.inputs = inputs;
    use.shape.outputs = outputs;
    use.tokens = rows_;
    work_.kernels.push_back(use);
  }
  /// In cp ring steps, each over its share of the causal pairs.
  void attention(Kernel kernel) {
    const double cp = scheme_.cp;
    for (int step = 0; step < scheme_.cp; ++step) {
      KernelUse use;
      use.shape.kernel = kernel;
      use.shape.heads = static_cast<int>(heads_);
      use.shape.kv_heads = static_cast<int>(kv_heads_);
      use.shape.head_dim = model_.head_dim;
      use.tokens = rows_;
      use.sum_squares = sum_squares_ / (cp * cp);
      work_.kernels.push_back(use);
    }
  }
  void tensor(Collective operation, std::int64_t bytes) {
    if (scheme_.tp == 1) return;
    work_.collectives.push_back({operation, WorkGroup::tensor, scheme_.tp, bytes});
  }
  void gather() { tensor(Collective::all_gather, rows_ * hidden_ * element_); }
  void scatter() { tensor(Collective::reduce_scatter, rows_ * hidden_ * element_); }
  void pass_on(int count) {
    work_.collectives.push_back({Collective::send, WorkGroup::context, scheme_.cp,
                                 rows_ * 2 * keys_ * element_, count, true});
  }

  void rotate() {
    rows(Kernel::rotary, rows_, queries_);
    rows(Kernel::rotary, rows_, keys_);
  }

  void ring() {
    rows(Kernel::zero, rows_, queries_);
    attention(Kernel::attention);
    if (scheme_.cp == 1) return;
    rows(Kernel::convert, rows_, 2 * keys_);
    pass_on(scheme_.cp - 1);
  }
  void ring_backward() {
    rows(Kernel::attention_delta, rows_, queries_);
    rows(Kernel::zero, rows_, queries_ + 2 * keys_);
    attention(Kernel::attention_backward);
    if (scheme_.cp == 1) return;
    for (int i = 0; i < 2; ++i) rows(Kernel::convert, rows_, 2 * keys_);
    for (int step = 0; step < scheme_.cp; ++step) rows(Kernel::zero, rows_, 2 * keys_);
    for (int step = 1; step < scheme_.cp; ++step) rows(Kernel::add, rows_, 2 * keys_);
    pass_on(2 * scheme_.cp - 1);
  }

  void attend() {
    rows(Kernel::rms_norm, shard_, hidden_);
    gather();
    gemm(Kernel::gemm_forward, hidden_, queries_ + 2 * keys_);
    if (model_.qkv_bias) rows(Kernel::add, rows_, queries_ + 2 * keys_);
    rotate();
    ring();
    row_split(queries_);
    rows(Kernel::add, shard_, hidden_);
  }
  void gate_up() {
    rows(Kernel::rms_norm, shard_, hidden_);
    gather();
    gemm(Kernel::gemm_forward, hidden_, 2 * channels_);
    rows(Kernel::swiglu, rows_, channels_);
  }
  /// x [rows, columns]·w with w stored [columns, hidden].
  void row_split(std::int64_t columns) {
    gemm(Kernel::gemm_input_gradient, hidden_, columns);
    scatter();
  }
  void row_split_gradients(std::int64_t columns) {
    gemm(Kernel::gemm_weight_gradient, hidden_, columns);
    gemm(Kernel::gemm_forward, hidden_, columns);
  }
  void column_split_gradients(std::int64_t outputs) {
    gather();
    gemm(Kernel::gemm_weight_gradient, hidden_, outputs);
    gemm(Kernel::gemm_input_gradient, hidden_, outputs);
    scatter();
  }
  void restore() {
    if (scheme_.recompute == Recompute::full) {
      attend();
      gate_up();
    } else if (scheme_.recompute == Recompute::selective) {
      for (int i = 0; i < 2; ++i) rows(Kernel::rms_norm, shard_, hidden_);
      rows(Kernel::swiglu, rows_, channels_);
    }
  }

  const ModelSpec& model_;
  const Scheme& scheme_;
  int element_;
  double sum_squares_;
  std::int64_t hidden_;
  std::int64_t shard_;  ///< rows between layers
  std::int64_t rows_;   ///< rows inside a layer
  std::int64_t heads_;  ///< of this device, as are the next five
  std::int64_t kv_heads_;
  std::int64_t queries_;
  std::int64_t keys_;
  std::int64_t channels_;
  std::int64_t vocabulary_;
  Work work_;
};

}  // namespace

Work layer_work(const ModelSpec& model, const Scheme& scheme, const BatchSize& batch, WorkPass pass,
                int element_bytes) {
  Device device(model, scheme, batch, element_bytes);
  pass == WorkPass::forward ? device.forward_layer() : device.backward_layer();
  return device.take();
}

Work stage_work(const ModelSpec& model, const Scheme& scheme, const BatchSize& batch,
                WorkPass pass) {
  Device device(model, scheme, batch, 1);
  if (pass == WorkPass::forward) device.positions();
  return device.take();
}

Work embedding_work(const ModelSpec& model, const Scheme& scheme, const BatchSize& batch,
                    WorkPass pass, int element_bytes) {
  Device device(model, scheme, batch, element_bytes);
  pass == WorkPass::forward ? device.embed() : device.embed_backward();
  return device.take();
}

Work head_work(const ModelSpec& model, const Scheme& scheme, const BatchSize& batch, WorkPass pass,
               int element_bytes) {
  Device device(model, scheme, batch, element_bytes);
  pass == WorkPass::forward ? device.head() : device.head_backward();
  return device.take();
}

std::vector<KernelShape> kernel_shapes(const ModelSpec& model, int tp) {
  Scheme scheme;
  scheme.cp = 2;
  scheme.tp = tp;
  scheme.recompute = Recompute::selective;
  const BatchSize batch{1, 1};
  std::vector<KernelShape> shapes;
  for (const WorkPass pass : {WorkPass::forward, WorkPass::backward}) {
    for (const Work& work :
         {layer_work(model, scheme, batch, pass, 1), stage_work(model, scheme, batch, pass),
          embedding_work(model, scheme, batch, pass, 1),
          head_work(model, scheme, batch, pass, 1)}) {
      for (const KernelUse& use : work.kernels) {
        if (std::find(shapes.begin(), shapes.end(), use.shape) == shapes.end()) {
          shapes.push_back(use.shape);
        }
      }
    }
  }
  return shapes;
}

std::string tensor_parallel_problem(const ModelSpec& model, int tp) {
  if (model.heads % tp != 0) {
    return fmt::format("{} attention heads do not divide by {}", model.heads, tp);
  }
  if (model.ffn_hidden % tp != 0) {
    return fmt::format("the feed-forward width {} does not divide by {}", model.ffn_hidden, tp);
  }
  const bool split = model.kv_heads % tp == 0;
  const bool repeated = tp % model.kv_heads == 0;
  if (!split && !repeated) {
    return fmt::format("{} key/value heads can be neither split nor repeated over {} devices",
                       model.kv_heads, tp);
  }
  return "";
}

}  // namespace hydraulis
