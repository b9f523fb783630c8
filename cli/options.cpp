#include "cli/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <thread>

#include "planner/schedule_choice.h"
#include "traces/length_trace.h"

namespace hydraulis {
namespace {

constexpr std::uint64_t kMostIterations = 10'000'000;
constexpr std::uint64_t kMostThreads = 1024;
constexpr std::uint64_t kMostTokens = 1'000'000'000'000;
constexpr std::uint64_t kMostSequences = kMostSequencesPerBatch;
constexpr std::uint64_t kMostContext = 1'000'000'000;
constexpr std::uint64_t kDefaultTokensPerBatch = 200'000;

std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string name = CLI::detail::trim_copy(text.substr(begin, end - begin));
    if (name.empty()) throw CLI::ValidationError("--policies", "an empty name in '" + text + "'");
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      throw CLI::ValidationError("--policies", "'" + name + "' is named twice");
    }
    names.push_back(std::move(name));
    begin = end + 1;
  }
  return names;
}

void add_system_options(CLI::App& command, CommonOptions& options) {
  command.add_option("--model", options.model, "preset or Hugging Face config.json")
      ->check(not_empty())
      ->capture_default_str();
  command.add_option("--cluster", options.cluster, "preset (a800-64, h100-1024, ...) or JSON file")
      ->check(not_empty())
      ->capture_default_str();
  command
      .add_option("--profile", options.profile,
                  "preset or HDF5 file [default: the one for this model and device]")
      ->check(not_empty());
  command
      .add_option_function<std::string>(
          "--memory-model",
          [&options](const std::string& text) {
            options.memory_model =
                text == "composed" ? MemoryModel::composed : MemoryModel::published;
          },
          "published (the authors' formula) or composed (what is alive) [published]")
      ->check(CLI::IsMember({"published", "composed"}));
  command
      .add_option("--schemes", options.schemes,
                  "consider derived schemes beside the profile's: cp (rings of 2, 4, 8), recompute "
                  "(selective, full), layers (unequal stages); with commas")
      ->check(not_empty());
}

void add_batch_options(CLI::App& command, CommonOptions& options) {
  CLI::Option* tokens =
      command
          .add_option("--tokens-per-batch", options.tokens_per_batch,
                      fmt::format("tokens of a global batch [{}]", kDefaultTokensPerBatch))
          ->check(whole_number(1, kMostTokens));
  command
      .add_option("--sequences-per-batch", options.sequences_per_batch,
                  "sequences of a global batch, instead of a token budget")
      ->check(whole_number(1, kMostSequences))
      ->excludes(tokens);
}

void add_context_options(CLI::App& command, CommonOptions& options) {
  command
      .add_option("--context", options.context,
                  fmt::format("longest sequence trained, in tokens [{}]", options.context))
      ->check(whole_number(1, kMostContext));
  command
      .add_option_function<std::string>(
          "--over-context",
          [&options](const std::string& text) { options.over_context = parse_over_context(text); },
          "longer sequences: error, truncate, split or drop (counted) [error]")
      ->check(CLI::IsMember({"error", "truncate", "split", "drop"}));
}

void add_format_options(CLI::App& command, CommonOptions& options) {
  CLI::Option* json = command.add_flag("--json", options.json, "print JSON");
  command.add_flag("--csv", options.csv, "print the main table as CSV")->excludes(json);
  command.add_flag("--reproducible", options.reproducible,
                   "leave measured times out: the same bytes for the same seed");
}

}  // namespace

CLI::Validator not_empty() {
  return {[](std::string& text) {
            return text.empty() ? std::string("is empty, expected a value") : std::string();
          },
          ""};
}

CLI::Validator whole_number(std::uint64_t low, std::uint64_t high) {
  const auto check = [low, high](std::string& text) -> std::string {
    std::uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    // The option's own conversion reads a leading zero as octal.
    const bool plain = error == std::errc() && stop == end && (text.size() == 1 || text[0] != '0');
    if (plain && value >= low && value <= high) return {};
    return fmt::format("'{}' is not a whole number from {} to {}", text, low, high);
  };
  return {check, ""};
}

CLI::Validator finite_number(double low, double high) {
  const auto check = [low, high](std::string& text) -> std::string {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end && std::isfinite(value) && value >= low &&
        value <= high) {
      return {};
    }
    return fmt::format("'{}' is not a number from {} to {}", text, low, high);
  };
  return {check, ""};
}

void add_common_options(CLI::App& command, CommonOptions& options, Has which) {
  const auto has = [which](Has one) {
    return (static_cast<unsigned>(which) & static_cast<unsigned>(one)) != 0;
  };
  if (has(Has::system)) add_system_options(command, options);
  if (has(Has::megatron)) {
    command
        .add_option("--megatron", options.megatron,
                    "script with Megatron-LM's arguments: its model, layout, batch and schedule")
        ->check(not_empty())
        ->excludes("--model");
  }
  if (has(Has::trace)) {
    command.add_option("--trace", options.trace, "sequence lengths: preset or file")
        ->check(not_empty())
        ->required();
    add_file_format_option(command, "--trace-format", options.trace_format);
  }
  if (has(Has::batch)) add_batch_options(command, options);
  if (has(Has::context)) add_context_options(command, options);
  if (has(Has::max_tokens)) {
    command
        .add_option("--max-tokens", options.max_tokens,
                    "cap on the tokens of a micro-batch [what memory holds]")
        ->check(whole_number(1, kMostTokens));
  }
  if (has(Has::iterations)) {
    command.add_option("--iterations", options.iterations, "batches drawn from the trace")
        ->check(whole_number(1, kMostIterations))
        ->capture_default_str();
  }
  if (has(Has::policies)) {
    command.add_option_function<std::string>(
        "--policies", [&options](const std::string& text) { options.policies = split_names(text); },
        "names separated by commas; the first is the baseline");
  }
  if (has(Has::communication)) {
    command.add_flag("--no-communication", options.no_communication,
                     "count computation alone: no transfer takes time");
    command
        .add_option_function<std::string>(
            "--network",
            [&options](const std::string& text) {
              options.network = parse_network_use(text, "--network");
            },
            "closed-form: every transfer has its links to itself; flows: transfers share ports, "
            "cards, leaf and spine of the cluster's network max-min fairly; auto: flows where the "
            "cluster has something to share")
        ->default_str("auto");
    add_collectives_option(command, options, true);
  }
  if (has(Has::schedule)) {
    command.add_option_function<std::string>(
        "--schedule",
        [&options](const std::string& text) {
          options.schedule = to_string(parse_schedule(text, "--schedule"));
        },
        "of pipelines: 1f1b, gpipe, interleaved:N, zb-h1, zb or unequal [the plan's, or 1f1b]");
  }
  if (has(Has::overlap)) {
    command
        .add_option_function<std::string>(
            "--overlap", [&options](const std::string& text) { options.overlap = text == "on"; },
            "parameters arrive and gradients leave layer by layer beside the computation (on), or "
            "all of them before and after it (off), as train's programs have it [off]")
        ->check(CLI::IsMember({"on", "off"}));
  }
  if (has(Has::switching)) {
    constexpr double kMostSwitch = 1e6;
    command
        .add_option(
            "--switch-seconds", options.switch_seconds,
            "what an iteration takes longer when its strategy is not that of the one before")
        ->check(finite_number(0, kMostSwitch))
        ->capture_default_str();
  }
  if (has(Has::rates)) {
    constexpr double kMost = 1e9;
    command
        .add_option("--price-per-device-hour", options.price_per_device_hour,
                    "what an hour of one device costs, for the price of tokens")
        ->check(finite_number(0, kMost));
    command
        .add_option("--watts-per-device", options.watts_per_device,
                    "what one device draws, for the energy of tokens [its data sheet's most]")
        ->check(finite_number(0, kMost));
  }
  if (has(Has::seed)) {
    command.add_option("--seed", options.seed, "of everything drawn at random")
        ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()))
        ->capture_default_str();
  }
  if (has(Has::threads)) {
    options.threads = std::clamp<unsigned>(std::thread::hardware_concurrency(), 1, kMostThreads);
    command.add_option("--threads", options.threads, "worker threads [every core]")
        ->check(whole_number(1, kMostThreads));
  }
  if (has(Has::format)) add_format_options(command, options);
  if (has(Has::verbose)) {
    command.add_flag("--verbose", options.verbose,
                     "print the origins and limits of the numbers too");
  }
  if (has(Has::output)) {
    command.add_option("-o,--output", options.output, "file to write, whole or not at all")
        ->check(not_empty());
  }
}

void add_collectives_option(CLI::App& command, CommonOptions& options, bool links) {
  std::vector<std::string> names = {"auto", "ring", "tree", "hierarchical"};
  if (links) names.insert(names.begin(), "links");
  command
      .add_option_function<std::string>(
          "--collectives",
          [&options](const std::string& text) {
            options.collectives = parse_collectives(text, "--collectives");
          },
          links ? "time communication by the links' bytes (links) or as a library's collectives: "
                  "auto, ring, tree or hierarchical [links]"
                : "algorithm: auto (the least), ring, tree or hierarchical [auto]")
      ->check(CLI::IsMember(names));
}

CLI::Option* add_file_format_option(CLI::App& command, const std::string& name,
                                    std::string& format) {
  return command.add_option(name, format, "format of that file [by its ending]")
      ->check(CLI::IsMember(file_formats()));
}

SamplerOptions sampler_options(const CommonOptions& options) {
  SamplerOptions result;
  result.tokens_per_batch = options.tokens_per_batch;
  result.sequences_per_batch = options.sequences_per_batch;
  if (result.tokens_per_batch == 0 && result.sequences_per_batch == 0) {
    result.tokens_per_batch = kDefaultTokensPerBatch;
  }
  result.context = options.context;
  result.over_context = options.over_context;
  result.seed = options.seed;
  return result;
}

}  // namespace hydraulis
