#include "traces/import/import.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "traces/import/importer.h"
#include "traces/store.h"

namespace hydraulis {
namespace {

constexpr std::size_t kBlock = 64 * 1024;

bool has_ending(const std::string& name, const std::string& ending) {
  return name.size() > ending.size() &&
         name.compare(name.size() - ending.size(), ending.size(), ending) == 0;
}

const Importer& choose_importer(const ImportOptions& options) {
  std::vector<std::string> known;
  for (const auto& importer : registered_importers()) {
    if (options.format.empty()) {
      for (const auto& ending : importer.endings) {
        if (has_ending(options.input.filename().string(), ending)) return importer;
        known.push_back(ending);
      }
    } else {
      if (importer.name == options.format) return importer;
      known.push_back(importer.name);
    }
  }
  if (options.format.empty()) {
    throw InputError(
        "{}: cannot tell the format from the name, expected an ending of {}, or "
        "--format",
        options.input.string(), fmt::join(known, ", "));
  }
  throw InputError("format '{}' is not known, expected {}", options.format, fmt::join(known, ", "));
}

ImportReport run(const ImportOptions& options, LengthCollector::Sink sink) {
  std::error_code ec;
  if (!std::filesystem::exists(options.input, ec)) {
    throw InputError("{}: no such file", options.input.string());
  }
  if (std::filesystem::is_directory(options.input, ec)) {
    throw InputError("{}: is a folder, expected a file", options.input.string());
  }
  const Importer& importer = choose_importer(options);
  ImportReport report;
  report.format = importer.name;
  report.source = options.source.empty() ? options.input.filename().string() : options.source;
  report.tokenizer = options.tokenizer.empty() ? "unknown" : options.tokenizer;
  LengthCollector collector(options, report, std::move(sink));
  importer.run(options, collector, report);
  collector.finish();
  if (report.sequences() == 0) {
    throw InputError("{}: no sequences to import: {} documents, {} of them empty{}",
                     options.input.string(), report.documents_read, report.empty_documents,
                     report.bad_lines > 0 ? fmt::format(", {} bad lines", report.bad_lines) : "");
  }
  if (report.bad_lines > 0) {
    report.warnings.push_back(
        fmt::format("{} lines could not be read and were left out", report.bad_lines));
  }
  return report;
}

LengthTrace trace_info(const ImportReport& report) {
  LengthTrace trace;
  trace.source = report.source;
  trace.tokenizer = report.tokenizer;
  trace.empty_documents = report.empty_documents;
  trace.origin = fmt::format("imported from {}", report.format);
  for (const auto& note : report.notes) trace.origin += "; " + note;
  trace.warnings = report.warnings;
  return trace;
}

}  // namespace

DocumentUnit parse_document_unit(const std::string& text) {
  if (text == "document") return DocumentUnit::document;
  if (text == "sequence") return DocumentUnit::sequence;
  throw InputError("unit '{}' is not known, expected document or sequence", text);
}

double ImportReport::mean_with_empty() const {
  return documents_read == 0 ? 0
                             : static_cast<double>(tokens) / static_cast<double>(documents_read);
}

double ImportReport::mean_without_empty() const {
  return sequences() == 0 ? 0 : static_cast<double>(tokens) / static_cast<double>(sequences());
}

Json to_json(const ImportReport& report) {
  return {{"format", report.format},
          {"source", report.source},
          {"tokenizer", report.tokenizer},
          {"sequences", report.sequences()},
          {"tokens", report.tokens},
          {"mean", report.mean_without_empty()},
          {"min", report.shortest},
          {"max", report.longest},
          {"documents_read", report.documents_read},
          {"empty_documents", report.empty_documents},
          {"mean_with_empty", report.mean_with_empty()},
          {"bad_lines", report.bad_lines},
          {"warnings", report.warnings},
          {"notes", report.notes}};
}

const std::vector<Importer>& registered_importers() {
  static const std::vector<Importer> importers = {
      {"megatron-idx", {".idx"}, false, "index of a Megatron-LM token file", import_megatron_idx},
      {"jsonl",
       {".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson", ".ndjson.gz", ".ndjson.zst"},
       true,
       "one JSON object a line with a text field; may be compressed with gzip or zstd",
       import_jsonl},
      {"lines",
       {".txt", ".txt.gz", ".txt.zst"},
       false,
       "one length a line; may be compressed",
       import_lines},
      {"histogram",
       {".csv", ".csv.gz", ".csv.zst"},
       false,
       "length,count a line",
       import_histogram},
      {"u32", {".u32"}, false, "little-endian 32-bit lengths without a header", import_u32},
  };
  return importers;
}

std::vector<ImportFormat> import_formats() {
  std::vector<ImportFormat> formats;
  for (const auto& importer : registered_importers()) {
    formats.push_back({importer.name, importer.endings, importer.description});
  }
  return formats;
}

LengthCollector::LengthCollector(const ImportOptions& options, ImportReport& report, Sink sink)
    : options_(options), report_(report), sink_(std::move(sink)) {
  block_.reserve(kBlock);
}

void LengthCollector::add(std::uint64_t length, const std::function<std::string()>& place) {
  if (length > std::numeric_limits<std::uint32_t>::max()) {
    throw InputError("{}: {}: {} tokens, at most {} are supported in one document",
                     options_.input.string(), place(), length,
                     std::numeric_limits<std::uint32_t>::max());
  }
  add_repeated(static_cast<std::uint32_t>(length), 1);
}

void LengthCollector::add_repeated(std::uint32_t length, std::uint64_t count) {
  constexpr std::uint64_t kMostDocuments = std::numeric_limits<std::uint32_t>::max();
  if (count == 0) return;
  if (count > kMostDocuments - report_.documents_read) {
    throw InputError("{}: more than {} documents", options_.input.string(), kMostDocuments);
  }
  report_.documents_read += count;
  if (length == 0) {
    report_.empty_documents += count;
    return;
  }
  report_.tokens += length * count;
  report_.longest = std::max<std::uint64_t>(report_.longest, length);
  report_.shortest =
      report_.shortest == 0 ? length : std::min<std::uint64_t>(report_.shortest, length);
  for (std::uint64_t i = 0; i < count; ++i) {
    block_.push_back(length);
    if (block_.size() == kBlock) flush();
  }
}

void LengthCollector::flush() {
  sink_(block_);
  block_.clear();
}

void LengthCollector::finish() {
  if (!block_.empty()) flush();
}

ImportReport import_trace(const ImportOptions& options, const std::filesystem::path& output) {
  TraceWriter writer(output);
  ImportReport report =
      run(options, [&](std::span<const std::uint32_t> block) { writer.append(block); });
  writer.finish(trace_info(report));
  return report;
}

LengthTrace import_in_memory(const ImportOptions& options, ImportReport* report) {
  std::vector<std::uint32_t> lengths;
  ImportReport result = run(options, [&](std::span<const std::uint32_t> block) {
    lengths.insert(lengths.end(), block.begin(), block.end());
  });
  LengthTrace trace = trace_info(result);
  trace.lengths = std::move(lengths);
  if (report != nullptr) *report = std::move(result);
  return trace;
}

}  // namespace hydraulis
