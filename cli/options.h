#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/collective_cost.h"
#include "costmodel/cost_model.h"
#include "sim/costing.h"
#include "traces/sampler.h"

namespace hydraulis {

/// Values of the options that mean the same in every subcommand. Whole numbers are checked for
/// their range while parsing; names (models, traces, policies) where they are loaded.
struct CommonOptions {
  std::string model = "llama-32b";  ///< preset or Hugging Face config.json
  std::string cluster = "a800-64";  ///< preset or cluster JSON
  std::string megatron;             ///< script with Megatron-LM's arguments; empty: not given
  std::string profile;              ///< preset or HDF5; empty: the one that fits model and cluster
  MemoryModel memory_model = MemoryModel::published;
  std::string schemes;                    ///< derived ones to consider: "cp,recompute,layers"
  std::string trace;                      ///< preset or file
  std::string trace_format;               ///< of that file; empty: by its ending
  std::uint64_t tokens_per_batch = 0;     ///< 0: not given
  std::uint64_t sequences_per_batch = 0;  ///< 0: not given
  std::uint64_t context = 32768;          ///< longest sequence, tokens
  OverContext over_context = OverContext::error;
  std::uint64_t max_tokens = 0;  ///< cap on a micro-batch, tokens; 0: memory alone decides
  std::uint64_t iterations = 100;
  std::vector<std::string> policies;  ///< as named, in order
  bool no_communication = false;
  NetworkUse network = NetworkUse::automatic;
  std::optional<CollectiveAlgorithm> collectives;  ///< none: bytes over the links as they are
  std::string schedule;                            ///< of pipelines; empty: the plan's
  bool overlap = false;              ///< parameters and gradients move beside the computation
  double switch_seconds = 0;         ///< what changing the strategy between iterations takes
  double price_per_device_hour = 0;  ///< 0: not given
  double watts_per_device = 0;       ///< 0: the data sheet's
  std::uint64_t seed = 0;
  unsigned threads = 1;  ///< default: every core
  bool json = false;
  bool csv = false;
  bool reproducible = false;
  bool verbose = false;
  std::string output;  ///< -o; empty: not given
};

/// Which of the common options a subcommand has; join with '|'.
enum class Has : unsigned {
  system = 1u << 0,         ///< --model --cluster --profile --memory-model --schemes
  trace = 1u << 1,          ///< --trace (required) --trace-format
  batch = 1u << 2,          ///< --tokens-per-batch --sequences-per-batch
  context = 1u << 3,        ///< --context --over-context
  max_tokens = 1u << 4,     ///< --max-tokens
  iterations = 1u << 5,     ///< --iterations
  policies = 1u << 6,       ///< --policies
  communication = 1u << 7,  ///< --no-communication --network --collectives
  seed = 1u << 8,           ///< --seed
  threads = 1u << 9,        ///< --threads
  format = 1u << 10,        ///< --json --csv --reproducible
  output = 1u << 11,        ///< -o, --output
  verbose = 1u << 12,       ///< --verbose
  schedule = 1u << 13,      ///< --schedule
  rates = 1u << 14,         ///< --price-per-device-hour --watts-per-device
  overlap = 1u << 15,       ///< --overlap
  switching = 1u << 20,     ///< --switch-seconds
  megatron = 1u << 21,      ///< --megatron
};
constexpr Has operator|(Has left, Has right) {
  return static_cast<Has>(static_cast<unsigned>(left) | static_cast<unsigned>(right));
}

/// Adds the common options named by `which` to a subcommand. `options` must outlive the parse.
void add_common_options(CLI::App& command, CommonOptions& options, Has which);

/// Adds --collectives; with `links` the links' bytes are a choice, and what is taken without it.
void add_collectives_option(CLI::App& command, CommonOptions& options, bool links);

/// Adds an option that names the format of a file of lengths.
CLI::Option* add_file_format_option(CLI::App& command, const std::string& name,
                                    std::string& format);

/// The sampler settings of the options; neither budget given means 200,000 tokens a batch.
SamplerOptions sampler_options(const CommonOptions& options);

/// Checks that an option's text is not empty.
CLI::Validator not_empty();

/// Checks that an option's text is a whole number in [low, high], in plain decimal digits.
CLI::Validator whole_number(std::uint64_t low, std::uint64_t high);

/// Checks that an option's text is a finite number in [low, high].
CLI::Validator finite_number(double low, double high);

}  // namespace hydraulis
