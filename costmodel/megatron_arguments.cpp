#include "costmodel/megatron_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/atomic_file.h"
#include "base/error.h"

namespace hydraulis {
namespace {

/// Arguments, and beginnings of arguments, that change nothing that is simulated: data, logs,
/// checkpoints, learning rates, launchers, choices between kernels.
constexpr std::array<std::string_view, 14> kNoEffectBeginnings = {
    "lr",       "log-",     "tensorboard-", "wandb-", "adam-",   "eval-",      "save",
    "no-load-", "no-save-", "exit-",        "rdzv-",  "profile", "dist-ckpt-", "rotary-"};
constexpr std::array<std::string_view, 63> kNoEffect = {"async-save",
                                                        "attention-backend",
                                                        "attention-dropout",
                                                        "attention-softmax-in-fp32",
                                                        "auto-detect-ckpt-format",
                                                        "bf16",
                                                        "calculate-per-token-loss",
                                                        "ckpt-format",
                                                        "clip-grad",
                                                        "cross-entropy-loss-fusion",
                                                        "data-cache-path",
                                                        "data-path",
                                                        "dataloader-type",
                                                        "distributed-backend",
                                                        "distributed-timeout-minutes",
                                                        "finetune",
                                                        "fp16",
                                                        "hidden-dropout",
                                                        "init-method-std",
                                                        "load",
                                                        "loss-scale",
                                                        "manual-gc",
                                                        "manual-gc-interval",
                                                        "master-addr",
                                                        "master-port",
                                                        "max-position-embeddings",
                                                        "merge-file",
                                                        "min-lr",
                                                        "mock-data",
                                                        "no-bias-gelu-fusion",
                                                        "no-bias-swiglu-fusion",
                                                        "no-check-for-nan-in-loss-and-grad",
                                                        "no-gradient-accumulation-fusion",
                                                        "no-masked-softmax-fusion",
                                                        "no-mmap-bin-files",
                                                        "no-position-embedding",
                                                        "no-rope-fusion",
                                                        "node-rank",
                                                        "norm-epsilon",
                                                        "num-dataset-builder-threads",
                                                        "num-workers",
                                                        "optimizer",
                                                        "override-opt-param-scheduler",
                                                        "position-embedding-type",
                                                        "reset-attention-mask",
                                                        "reset-position-ids",
                                                        "eod-mask-loss",
                                                        "seed",
                                                        "split",
                                                        "test-data-path",
                                                        "timing-log-level",
                                                        "tokenizer-model",
                                                        "train-data-path",
                                                        "train-iters",
                                                        "train-samples",
                                                        "transformer-impl",
                                                        "use-checkpoint-args",
                                                        "use-cpu-initialization",
                                                        "use-flash-attn",
                                                        "use-mcore-models",
                                                        "use-rotary-position-embeddings",
                                                        "valid-data-path",
                                                        "vocab-file"};
constexpr std::array<std::string_view, 4> kNoEffectMore = {
    "weight-decay", "weight-decay-incr-style", "start-weight-decay", "end-weight-decay"};

/// Vocabularies of tokenizers whose size does not hang on a file.
constexpr std::pair<std::string_view, int> kTokenizers[] = {{"GPT2BPETokenizer", 50257},
                                                            {"Llama2Tokenizer", 32000}};

constexpr int kMost = 1 << 28;
constexpr int kMostParallel = 1 << 16;
constexpr int kWidthStep = 64;  ///< of feed-forward widths that are worked out

bool has_no_effect(const std::string& name) {
  const auto begins = [&](std::string_view beginning) { return name.rfind(beginning, 0) == 0; };
  return std::ranges::any_of(kNoEffectBeginnings, begins) ||
         std::ranges::find(kNoEffect, name) != kNoEffect.end() ||
         std::ranges::find(kNoEffectMore, name) != kNoEffectMore.end();
}

/// Words behind a value that belong to the command and not to its argument: the program, variables
/// that hold other arguments.
bool is_foreign(const std::string& word) {
  return word.rfind('$', 0) == 0 || word.ends_with(".py");
}

int vocabulary(MegatronArguments& arguments) {
  if (const auto padded = arguments.integer("padded-vocab-size", 1, kMost)) return *padded;
  std::optional<int> words = arguments.integer("vocab-size", 1, kMost);
  const std::string tokenizer = arguments.text("tokenizer-type").value_or("");
  for (const auto& [name, size] : kTokenizers) {
    if (!words && tokenizer == name) words = size;
  }
  if (!words) {
    throw InputError(
        "{}: --vocab-size is missing, and the vocabulary of {} is not known here: add --vocab-size",
        arguments.where(), tokenizer.empty() ? "its tokenizer" : tokenizer);
  }
  const std::int64_t step =
      std::int64_t{arguments.integer("make-vocab-size-divisible-by", 1, kMost).value_or(128)} *
      arguments.integer("tensor-model-parallel-size", 1, kMostParallel).value_or(1);
  const std::int64_t padded = (*words + step - 1) / step * step;
  if (padded > kMost) {
    arguments.contradict("vocab-size",
                         fmt::format("padded to {}, expected at most {}", padded, kMost));
  }
  return static_cast<int>(padded);
}

/// Of a gated feed-forward network: its own, or one with as many parameters as an ungated one.
int feed_forward(MegatronArguments& arguments, int hidden, std::vector<std::string>& notes) {
  const bool gated = arguments.on("swiglu");
  const auto given = arguments.integer("ffn-hidden-size", 1, kMost);
  if (gated) return given.value_or(4 * hidden * 2 / 3 / kWidthStep * kWidthStep);
  const int width = given.value_or(4 * hidden);
  const int same = (2 * width / 3 + kWidthStep - 1) / kWidthStep * kWidthStep;
  notes.push_back(
      fmt::format("without --swiglu: the feed-forward width of {} is taken as a gated one of {}, "
                  "which has as many parameters",
                  width, same));
  return same;
}

}  // namespace

MegatronArguments::MegatronArguments(const std::vector<Argument>& arguments, std::string where)
    : where_(std::move(where)) {
  for (const Argument& argument : arguments) {
    const auto [found, added] =
        arguments_.try_emplace(argument.name, Found{argument.values, argument.line});
    if (added) {
      order_.push_back(argument.name);
    } else if (found->second.values != argument.values && !has_no_effect(argument.name)) {
      throw InputError("{}: --{} is given twice, on lines {} and {}, with different values", where_,
                       argument.name, found->second.line, argument.line);
    }
  }
}

const MegatronArguments::Found* MegatronArguments::find(const std::string& name) {
  used_.insert(name);
  const auto found = arguments_.find(name);
  return found == arguments_.end() ? nullptr : &found->second;
}

std::string MegatronArguments::place(const std::string& name) const {
  const auto found = arguments_.find(name);
  return found == arguments_.end()
             ? fmt::format("{}: --{}", where_, name)
             : fmt::format("{}: line {}, --{}", where_, found->second.line, name);
}

bool MegatronArguments::has(const std::string& name) { return find(name) != nullptr; }

bool MegatronArguments::on(const std::string& name) {
  const Found* found = find(name);
  if (found == nullptr) return false;
  for (const std::string& value : found->values) {
    if (is_foreign(value)) break;
    throw InputError("{} has the value '{}', expected none", place(name), value);
  }
  return true;
}

std::optional<std::string> MegatronArguments::text(const std::string& name) {
  const Found* found = find(name);
  if (found == nullptr) return std::nullopt;
  const std::vector<std::string>& values = found->values;
  if (values.empty()) throw InputError("{} has no value", place(name));
  if (values[0].find('$') != std::string::npos) {
    throw InputError("{} is {}, which the file does not set to a value: write the value",
                     place(name), values[0]);
  }
  if (values.size() > 1 && !is_foreign(values[1])) {
    throw InputError("{} has the values '{}' and '{}', expected one", place(name), values[0],
                     values[1]);
  }
  return values[0];
}

std::optional<int> MegatronArguments::integer(const std::string& name, int low, int high) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  int number = 0;
  const char* end = value->data() + value->size();
  const auto [stop, error] = std::from_chars(value->data(), end, number);
  if (error != std::errc() || stop != end || number < low || number > high) {
    throw InputError("{} is '{}', expected a whole number from {} to {}", place(name), *value, low,
                     high);
  }
  return number;
}

int MegatronArguments::required(const std::string& name, int low, int high) {
  const auto value = integer(name, low, high);
  if (!value) throw InputError("{}: --{} is missing", where_, name);
  return *value;
}

void MegatronArguments::refuse(const std::string& name, const std::string& why,
                               const std::vector<std::string>& allowed) {
  const Found* found = find(name);
  if (found == nullptr) return;
  if (!found->values.empty() && std::ranges::find(allowed, found->values[0]) != allowed.end()) {
    return;
  }
  throw InputError("{}: {}", place(name), why);
}

void MegatronArguments::contradict(const std::string& name, const std::string& why) const {
  throw InputError("{}: {}", place(name), why);
}

std::vector<std::string> MegatronArguments::unknown() const {
  std::vector<std::string> names;
  for (const std::string& name : order_) {
    if (!used_.contains(name) && !has_no_effect(name)) names.push_back("--" + name);
  }
  return names;
}

MegatronArguments read_megatron_arguments(const std::filesystem::path& path) {
  const std::vector<Argument> arguments = parse_argument_list(read_text_file(path));
  if (arguments.empty()) {
    throw InputError("{}: no argument such as --num-layers, expected those of Megatron-LM",
                     path.string());
  }
  return {arguments, path.string()};
}

ModelSpec megatron_model(MegatronArguments& arguments, std::vector<std::string>& notes) {
  arguments.refuse("num-experts", "mixtures of experts are not simulated", {"1"});
  arguments.refuse("expert-model-parallel-size", "mixtures of experts are not simulated", {"1"});
  arguments.refuse("multi-latent-attention", "latent attention is not simulated");
  arguments.refuse("mtp-num-layers", "multi-token prediction is not simulated", {"0"});
  arguments.refuse("encoder-num-layers", "encoders are not simulated", {"0"});
  arguments.refuse("hybrid-override-pattern", "state-space layers are not simulated");
  arguments.refuse("window-size", "sliding windows are not simulated");
  ModelSpec model;
  model.name = std::filesystem::path(arguments.where()).stem().string();
  model.layers = arguments.required("num-layers", 1, 1 << 16);
  model.hidden = arguments.required("hidden-size", 1, 1 << 20);
  model.heads = arguments.required("num-attention-heads", 1, 1 << 16);
  model.kv_heads = model.heads;
  const bool grouped = arguments.on("group-query-attention");
  const auto groups = arguments.integer("num-query-groups", 1, model.heads);
  if (grouped) model.kv_heads = groups.value_or(1);
  if (groups && !grouped && *groups != model.heads) {
    arguments.contradict("num-query-groups",
                         fmt::format("{} groups without --group-query-attention, which Megatron-LM "
                                     "would not use: add it or take this out",
                                     *groups));
  }
  if (model.heads % model.kv_heads != 0) {
    arguments.contradict("num-query-groups", fmt::format("{} heads do not divide into {} groups",
                                                         model.heads, model.kv_heads));
  }
  if (const auto channels = arguments.integer("kv-channels", 1, 1 << 16)) {
    model.head_dim = *channels;
  } else if (model.hidden % model.heads != 0) {
    arguments.contradict("hidden-size",
                         fmt::format("{} does not divide by {} heads and there is no "
                                     "--kv-channels",
                                     model.hidden, model.heads));
  } else {
    model.head_dim = model.hidden / model.heads;
  }
  model.ffn_hidden = feed_forward(arguments, model.hidden, notes);
  model.vocab = vocabulary(arguments);
  model.tied_embeddings = !arguments.on("untie-embeddings-and-output-weights");
  const bool biases = !arguments.on("disable-bias-linear");
  model.qkv_bias = arguments.on("add-qkv-bias") || biases;
  model.qk_norm = arguments.on("qk-layernorm");
  if (biases) {
    notes.push_back(
        "without --disable-bias-linear: of the biases only those of queries, keys and values "
        "count");
  }
  if (arguments.text("normalization").value_or("LayerNorm") == "LayerNorm") {
    notes.push_back("LayerNorm is taken as RMSNorm");
  }
  check_model(model, arguments.where());
  return model;
}

}  // namespace hydraulis
