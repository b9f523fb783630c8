#include "report/validate_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "report/validate_csv.h"

namespace hydraulis {
namespace {

constexpr int kMost = 1 << 20;
constexpr double kMostElements = 1e15;
constexpr double kMilliseconds = 1e-3;
constexpr double kGibibyte = 1024.0 * 1024 * 1024;

std::string layout_text(const PublicRow& row) {
  std::string text = fmt::format("tp{}", row.tp);
  if (row.cp > 1) text += fmt::format(" cp{}", row.cp);
  text += fmt::format(" pp{}", row.pp);
  if (row.interleave > 1) text += fmt::format("x{}", row.interleave);
  return text + fmt::format(" dp{} {}x{}", row.dp, row.micro_batches, row.micro_batch);
}

/// Sizes of the LLaMA 3 models.
struct Llama3 {
  const char* name;
  int hidden, ffn_hidden, heads, layers;
};
constexpr Llama3 kLlama3[] = {
    {"8b", 4096, 14336, 32, 32}, {"70b", 8192, 28672, 64, 80}, {"405b", 16384, 53248, 128, 126}};

/// "tp4" is ("tp", 4); no number where there is none.
std::pair<std::string, int> name_and_number(const std::string& part) {
  const auto digit = part.find_first_of("0123456789");
  if (digit == std::string::npos || digit == 0 || part.size() - digit > 7 ||
      part.find_first_not_of("0123456789", digit) != std::string::npos) {
    return {part, 0};
  }
  return {part.substr(0, digit), std::stoi(part.substr(digit))};
}

PublicRow named_row(const CsvFile& file, std::size_t i) {
  std::vector<std::string> parts(1);
  for (const char c : file.text(i, "case")) {
    if (c == '_') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  const auto known = std::find_if(std::begin(kLlama3), std::end(kLlama3), [&](const Llama3& m) {
    return parts.size() > 1 && parts[0] == "llama3" && parts[1] == m.name;
  });
  if (known == std::end(kLlama3)) {
    file.refuse(i, "case", "llama3_8b_…, llama3_70b_… or llama3_405b_…");
  }
  PublicRow row;
  row.model = {"", known->layers, known->hidden, known->ffn_hidden, known->heads, 8, 128, 128256};
  row.sequence_length = 4096;
  row.micro_batches = 0;
  for (std::size_t p = 2; p < parts.size(); ++p) {
    const auto [name, number] = name_and_number(parts[p]);
    if (number == 0) continue;  // "cef": options of the framework
    if (name == "l") row.model.layers = number;
    if (name == "tp") row.tp = number;
    if (name == "cp") row.cp = number;
    if (name == "pp") row.pp = number;
    if (name == "dp") row.dp = number;
    if (name == "seq") row.sequence_length = number;
    if (name == "mbs") row.micro_batch = number;
    if (name == "mbc") row.micro_batches = number;
    if (name == "vp") row.interleave = number;
  }
  if (row.micro_batches == 0) file.refuse(i, "case", "a part mbcN, the number of micro-batches");
  row.model_name = fmt::format("llama3_{}", known->name);
  row.measured_seconds = kMilliseconds * file.positive(i, "measured_ms");
  if (file.has("measured_alloc_gib")) {
    row.measured_bytes = kGibibyte * file.positive(i, "measured_alloc_gib");
  }
  return row;
}

int optional_integer(const CsvFile& file, std::size_t i, const char* column, int fallback) {
  return file.has(column) && !file.text(i, column).empty() ? file.integer(i, column, 1, kMost)
                                                           : fallback;
}

std::optional<bool> optional_switch(const CsvFile& file, std::size_t i, const char* column) {
  if (!file.has(column) || file.text(i, column).empty()) return std::nullopt;
  return file.integer(i, column, 0, 1) == 1;
}

std::optional<Recompute> recompute_of(const CsvFile& file, std::size_t i) {
  if (!file.has("recompute") || file.text(i, "recompute").empty()) return std::nullopt;
  const std::string& text = file.text(i, "recompute");
  if (text == "none") return Recompute::none;
  if (text == "selective") return Recompute::selective;
  if (text != "full") file.refuse(i, "recompute", "none, selective or full");
  return Recompute::full;
}

ModelSpec model_of(const CsvFile& file, std::size_t i) {
  ModelSpec model;
  model.layers = file.integer(i, "layers", 1, kMost);
  model.hidden = file.integer(i, "hidden", 1, kMost);
  model.heads = file.integer(i, "heads", 1, kMost);
  if (model.hidden % model.heads != 0) {
    file.refuse(i, "heads", fmt::format("a divisor of hidden {}", model.hidden));
  }
  model.head_dim = model.hidden / model.heads;
  model.kv_heads = optional_integer(file, i, "kv_heads", model.heads);
  const bool gated = optional_switch(file, i, "gated").value_or(false);
  const int ffn = optional_integer(file, i, "ffn_hidden", 4 * model.hidden);
  // Two matrices of f columns have as many elements as three of 2·f/3.
  model.ffn_hidden = gated ? ffn : static_cast<int>(std::lround(2.0 * ffn / 3));
  model.vocab = optional_integer(file, i, "vocab", 0);
  model.tied_embeddings = !gated;
  return model;
}

PublicRow plain_row(const CsvFile& file, std::size_t i, const std::string& measured) {
  PublicRow row;
  row.model = model_of(file, i);
  row.sequence_length = file.integer(i, "sequence_length", 1, kMost);
  row.tp = file.integer(i, "tp", 1, kMost);
  row.pp = file.integer(i, "pp", 1, kMost);
  row.dp = file.integer(i, "dp", 1, kMost);
  row.cp = optional_integer(file, i, "cp", 1);
  row.interleave = optional_integer(file, i, "interleave", 1);
  row.micro_batch = file.integer(i, "micro_batch", 1, kMost);
  const int batch = file.integer(i, "global_batch", 1, kMost);
  const std::int64_t step = std::int64_t{row.micro_batch} * row.dp;
  if (batch % step != 0) {
    file.refuse(i, "global_batch", fmt::format("a multiple of micro_batch x dp, {}", step));
  }
  row.micro_batches = static_cast<int>(batch / step);
  row.recompute = recompute_of(file, i);
  row.sequence_parallel = optional_switch(file, i, "sequence_parallel");
  row.measured_seconds = kMilliseconds * file.positive(i, measured);
  if (file.has("allocated_gib") && !file.text(i, "allocated_gib").empty()) {
    row.measured_bytes = kGibibyte * file.positive(i, "allocated_gib");
  }
  if (file.has("model")) {
    row.model_name = file.text(i, "model");
  } else if (file.has("params_billion")) {
    row.model_name = file.text(i, "params_billion") + "B";
  } else {
    row.model_name = fmt::format("h{}_l{}", row.model.hidden, row.model.layers);
  }
  return row;
}

void check(const CsvFile& file, std::size_t i, const PublicRow& row) {
  const std::string column = file.has("case") ? "case" : "pp";
  const std::int64_t devices = std::int64_t{row.tp} * row.cp * row.pp;
  if (devices > kMost || devices * row.dp > kMost) {
    file.refuse(i, column, fmt::format("a layout of at most {} devices", kMost));
  }
  // What a product reads and writes must be countable in bytes.
  const double tokens = static_cast<double>(row.micro_batch) * row.sequence_length;
  const double widest = 3.0 * std::max({row.model.hidden, row.model.ffn_hidden, row.model.vocab});
  if (tokens * widest > kMostElements || widest * widest > kMostElements) {
    file.refuse(i, column == "case" ? column : "micro_batch",
                "sizes whose activations stay below 10^15 elements");
  }
  if (row.pp > row.model.layers) {
    file.refuse(i, column, fmt::format("at most as many stages as layers, {}", row.model.layers));
  }
  if (file.has("gpus") && file.integer(i, "gpus", 1, kMost) != row.devices()) {
    file.refuse(i, "gpus", fmt::format("tp x cp x pp x dp = {}", row.devices()));
  }
}

}  // namespace

PublicRows read_public_rows(const std::string& path) {
  const CsvFile file(path);
  PublicRows result;
  result.path = path;
  const bool named = file.has("case");
  const std::string measured = named ? "measured_ms" : file.one_of({"iteration_ms"});
  bool several_nodes = false;
  for (std::size_t i = 0; i < file.rows(); ++i) {
    PublicRow row = named ? named_row(file, i) : plain_row(file, i, measured);
    row.line = file.line(i);
    check(file, i, row);
    row.layout = layout_text(row);
    several_nodes = several_nodes || row.devices() > 8;
    result.rows.push_back(std::move(row));
  }
  const std::set<std::string> used =
      named ? std::set<std::string>{"case", "measured_ms", "measured_alloc_gib"}
            : std::set<std::string>{"layers",
                                    "hidden",
                                    "heads",
                                    "sequence_length",
                                    "tp",
                                    "pp",
                                    "dp",
                                    "cp",
                                    "interleave",
                                    "micro_batch",
                                    "kv_heads",
                                    "gated",
                                    "vocab",
                                    "ffn_hidden",
                                    "global_batch",
                                    "recompute",
                                    "gpus",
                                    "model",
                                    "sequence_parallel",
                                    "allocated_gib",
                                    "iteration_ms",
                                    "params_billion"};
  for (const std::string& column : file.columns()) {
    if (!used.contains(column)) result.unused_columns.push_back(column);
  }
  result.device = named ? "b200" : several_nodes ? "a100-cluster" : "a100-node";
  return result;
}

AllReduceCurve read_all_reduce_table(const std::string& path, int devices) {
  const CsvFile file(path, true);
  AllReduceCurve curve;
  curve.devices = devices;
  for (std::size_t i = 0; i < file.rows(); ++i) {
    const double bytes = file.positive(i, "size(B)");
    if (!curve.points.empty() && bytes <= curve.points.back().bytes) {
      file.refuse(i, "size(B)", "sizes in ascending order");
    }
    curve.points.push_back({bytes, 1e-9 * file.positive(i, "time(ns)")});
  }
  return curve;
}

std::vector<std::string> group_columns() { return {"model", "hidden", "gpus", "tp", "pp", "dp"}; }

std::string group_of(const PublicRow& row, const std::string& column) {
  if (column == "model") return row.model_name;
  if (column == "hidden") return std::to_string(row.model.hidden);
  if (column == "gpus") return std::to_string(row.devices());
  if (column == "tp") return std::to_string(row.tp);
  if (column == "pp") return std::to_string(row.pp);
  if (column == "dp") return std::to_string(row.dp);
  throw InputError("--leave-one-out: '{}', expected model, hidden, gpus, tp, pp or dp", column);
}

}  // namespace hydraulis
