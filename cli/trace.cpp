// `hydraulis trace import | synth | show`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "traces/import/import.h"
#include "traces/length_trace.h"
#include "traces/statistics.h"
#include "traces/store.h"
#include "traces/synth.h"

namespace hydraulis {
namespace {

constexpr std::uint64_t kMostDocuments = 4294967295;
constexpr std::uint64_t kMostContext = std::uint64_t{1} << 40;

std::int64_t whole(std::uint64_t value) { return static_cast<std::int64_t>(value); }

/// The figures of a trace, one a row.
Table summary_table(const LengthTrace& trace, const TraceStatistics& statistics) {
  Table table;
  table.columns = {{"figure", "figure", 0, Align::left}, {"value", "value", 1, Align::right}};
  table.rows = {{std::string("sequences"), whole(statistics.sequences)},
                {std::string("tokens"), whole(statistics.tokens)},
                {std::string("mean"), statistics.mean},
                {std::string("min"), whole(statistics.min)}};
  for (const auto& [name, value] : statistics.quantiles) table.rows.push_back({name, whole(value)});
  table.rows.push_back({std::string("max"), whole(statistics.max)});
  if (statistics.empty_documents > 0) {
    table.rows.push_back(
        {std::string("empty documents, left out"), whole(statistics.empty_documents)});
    table.rows.push_back({std::string("mean with them"), statistics.mean_with_empty});
  }
  table.notes.push_back("source: " + trace.source);
  table.notes.push_back("a token is: " + trace.tokenizer);
  if (!trace.origin.empty()) table.notes.push_back("origin: " + trace.origin);
  if (!trace.licence.empty()) table.notes.push_back("licence: " + trace.licence);
  return table;
}

Table bucket_table(const TraceStatistics& statistics) {
  Table table;
  table.columns = {{"upto", "up to tokens"},
                   {"sequences", "sequences"},
                   {"tokens", "tokens"},
                   {"sequence_share", "share of sequences", 4},
                   {"token_share", "share of tokens", 4}};
  for (const auto& bucket : statistics.buckets) {
    table.rows.push_back({whole(bucket.upto), whole(bucket.sequences), whole(bucket.tokens),
                          bucket.sequence_share, bucket.token_share});
  }
  return table;
}

void warn(const std::vector<std::string>& warnings) {
  for (const auto& warning : warnings) fmt::print(stderr, "hydraulis: warning: {}\n", warning);
}

/// A store under another ending has to be named by its format wherever it is read.
void warn_about_ending(const std::string& output) {
  if (output.ends_with(".h5") || output.ends_with(".hdf5")) return;
  warn({output + ": does not end in .h5; read it with --format h5 (or --trace-format h5)"});
}

struct ShowOptions {
  CommonOptions common;
  std::string trace;
  std::string format;
  std::uint64_t context = 0;
  std::string over_context = "error";
};

void show(const ShowOptions& options) {
  LengthTrace trace = load_trace(options.trace, options.format);
  warn(trace.warnings);
  OverContextCounts counts;
  const OverContext policy = parse_over_context(options.over_context);
  if (options.context == 0 && policy != OverContext::error) {
    throw InputError("--over-context {}: needs --context, the length it applies to",
                     options.over_context);
  }
  if (options.context > 0) trace = apply_over_context(trace, options.context, policy, counts);
  const TraceStatistics statistics = compute_statistics(trace);
  Report report;
  report.json = to_json(statistics);
  report.json["source"] = trace.source;
  report.json["tokenizer"] = trace.tokenizer;
  report.json["origin"] = trace.origin;
  report.json["licence"] = trace.licence;
  report.tables = {bucket_table(statistics), summary_table(trace, statistics)};
  if (options.context > 0) {
    report.json["context"] = options.context;
    report.json["over_context"] = {{"policy", options.over_context},
                                   {"sequences", counts.sequences},
                                   {"tokens_removed", counts.tokens_removed}};
    report.tables.back().notes.push_back(
        fmt::format("context {}, over it ({}): {} sequences, {} tokens removed", options.context,
                    options.over_context, counts.sequences, counts.tokens_removed));
  }
  if (options.common.json || options.common.csv) {
    emit(options.common, report, false);
  } else {
    std::swap(report.tables.front(), report.tables.back());
    write_stdout(to_text(report) + "\n" + draw_histogram(statistics));
  }
}

void add_show(CLI::App& trace) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* command = trace.add_subcommand("show", "figures and a histogram of a trace");
  std::vector<std::string> names;
  for (const auto& known : known_traces()) names.push_back(known.name);
  command->add_option("trace", options->trace, "file (.h5 .txt .csv .u32 .idx) or name")
      ->required();
  add_file_format_option(*command, "--format", options->format);
  command->add_option("--context", options->context, "longest sequence in tokens [no limit]")
      ->check(whole_number(1, kMostContext));
  command
      ->add_option("--over-context", options->over_context,
                   "sequences over the context: error, truncate, split or drop")
      ->capture_default_str();
  add_common_options(*command, options->common, Has::format);
  command->footer(
      fmt::format("Names: {}.\nExample:\n  hydraulis trace show github-gpt2 --context 32768 "
                  "--over-context truncate",
                  fmt::join(names, ", ")));
  command->callback([options] { show(*options); });
}

struct ImportCommand {
  CommonOptions common;
  ImportOptions import;
  std::string input;
  std::string unit = "document";
};

Table import_table(const ImportReport& result, const std::string& output) {
  Table table;
  table.columns = {{"figure", "figure", 0, Align::left}, {"value", "value", 1, Align::right}};
  table.rows = {{std::string("documents read"), whole(result.documents_read)},
                {std::string("empty, left out"), whole(result.empty_documents)},
                {std::string("sequences kept"), whole(result.sequences())},
                {std::string("tokens"), whole(result.tokens)},
                {std::string("mean of those kept"), result.mean_without_empty()},
                {std::string("mean with empty ones"), result.mean_with_empty()},
                {std::string("shortest kept"), whole(result.shortest)},
                {std::string("longest"), whole(result.longest)}};
  if (result.bad_lines > 0) {
    table.rows.push_back({std::string("bad lines, left out"), whole(result.bad_lines)});
  }
  table.notes.push_back("written to " + output);
  table.notes.push_back("a token is: " + result.tokenizer);
  for (const auto& note : result.notes) table.notes.push_back(note);
  return table;
}

void run_import(const ImportCommand& command) {
  refuse_same_file({{"-o", command.common.output}}, {{"the corpus", command.input}});
  ImportOptions options = command.import;
  options.input = command.input;
  options.unit = parse_document_unit(command.unit);
  const ImportReport result = import_trace(options, command.common.output);
  warn(result.warnings);
  warn_about_ending(command.common.output);
  Report report;
  report.json = to_json(result);
  report.json["output"] = command.common.output;
  report.tables = {import_table(result, command.common.output)};
  emit(command.common, report, false);
}

void add_import(CLI::App& trace) {
  auto options = std::make_shared<ImportCommand>();
  CLI::App* command = trace.add_subcommand("import", "sequence lengths from a corpus");
  std::vector<std::string> names;
  std::string formats;
  for (const auto& format : import_formats()) {
    names.push_back(format.name);
    formats += fmt::format("  {:<13} {} ({})\n", format.name, format.description,
                           fmt::join(format.endings, " "));
  }
  command->add_option("file", options->input, "corpus or list of lengths")->required();
  add_common_options(*command, options->common, Has::output | Has::format);
  command->get_option("--output")->required();
  command->add_option("--format", options->import.format, "input format [by the name's ending]");
  command->add_option("--tokenizer", options->import.tokenizer,
                      "for text: bytes, words:R (an estimate), bpe:FOLDER or bpe:VOCAB,MERGES; for "
                      "lists of lengths: what a token was");
  command->add_option("--text-field", options->import.text_field, "JSONL: field with the text")
      ->capture_default_str();
  command->add_flag("--skip-bad-lines", options->import.skip_bad_lines,
                    "leave out lines that cannot be read and count them");
  command
      ->add_option("--unit", options->unit, "Megatron index: a length is a document or a sequence")
      ->capture_default_str();
  command->add_option("--source", options->import.source,
                      "where the lengths come from, for people [the file's name]");
  command->footer(
      "Formats:\n" + formats +
      "Empty documents are left out and counted; no end-of-text token is added.\nExample:\n"
      "  hydraulis trace import corpus.jsonl.gz --tokenizer bpe:gpt2/ -o corpus.h5");
  command->callback([options] { run_import(*options); });
}

struct SynthCommand {
  CommonOptions common;
  std::string preset;
  TwoPieceLaw law;
  std::uint64_t documents = 200000;
};

void synth(const SynthCommand& command) {
  const LengthTrace trace =
      command.preset.empty()
          ? synthesize(command.law, command.documents, command.common.seed)
          : synthesize_preset(command.preset, command.documents, command.common.seed);
  write_trace(command.common.output, trace);
  warn_about_ending(command.common.output);
  const TraceStatistics statistics = compute_statistics(trace);
  Report report;
  report.json = to_json(statistics);
  report.json["source"] = trace.source;
  report.json["output"] = command.common.output;
  report.tables = {summary_table(trace, statistics)};
  report.tables.front().notes.push_back("written to " + command.common.output);
  emit(command.common, report, false);
}

void add_synth(CLI::App& trace) {
  auto options = std::make_shared<SynthCommand>();
  CLI::App* command = trace.add_subcommand("synth", "a synthetic trace, the same on every machine");
  std::string presets;
  for (const auto& preset : synth_presets()) {
    presets += fmt::format("  {:<13} {}\n", preset.name, preset.description);
  }
  add_common_options(*command, options->common, Has::output | Has::seed | Has::format);
  command->get_option("--output")->required();
  command->add_option("-n,--documents", options->documents, "number of lengths to draw")
      ->check(whole_number(1, kMostDocuments))
      ->capture_default_str();
  CLI::Option* preset =
      command->add_option("--preset", options->preset, "a published distribution");
  struct Parameter {
    const char* name;
    double* value;
    const char* help;
  };
  TwoPieceLaw& law = options->law;
  std::vector<CLI::Option*> parameters;
  for (const Parameter& parameter :
       {Parameter{"--mu", &law.mu, "mean of ln(tokens) of the log-normal body"},
        {"--sigma", &law.sigma, "its standard deviation"},
        {"--xm", &law.xm, "tokens where the Pareto tail begins"},
        {"--alpha", &law.alpha, "exponent of the tail"},
        {"--p", &law.p, "share of documents in the tail"},
        {"--lo", &law.lo, "shortest length, tokens [1]"},
        {"--hi", &law.hi, "longest length, tokens"}}) {
    parameters.push_back(command->add_option(parameter.name, *parameter.value, parameter.help)
                             ->check(finite_number(-1e12, 1e12))
                             ->excludes(preset));
  }
  command->footer(
      "Presets:\n" + presets +
      "Without a preset: log-normal body and Pareto tail from --mu --sigma --xm --alpha "
      "--p --hi.\nExample:\n"
      "  hydraulis trace synth --preset commoncrawl -n 100000 --seed 1 -o web.h5");
  command->callback([options, preset, parameters] {
    const std::size_t shortest = 5;  // --lo has a default
    for (std::size_t i = 0; preset->count() == 0 && i < parameters.size(); ++i) {
      if (i != shortest && parameters[i]->count() == 0) {
        throw InputError(
            "trace synth: {} is missing; give --preset or all of --mu --sigma --xm "
            "--alpha --p --hi",
            parameters[i]->get_name());
      }
    }
    synth(*options);
  });
}

}  // namespace

void add_trace_commands(CLI::App& app) {
  CLI::App* trace = app.add_subcommand("trace", "sequence-length traces: import, make, describe");
  trace->require_subcommand(1);
  trace->footer("Example:\n  hydraulis trace show web-gpt2");
  add_import(*trace);
  add_synth(*trace);
  add_show(*trace);
}

}  // namespace hydraulis
