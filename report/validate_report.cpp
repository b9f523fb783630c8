#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "report/validate.h"

namespace hydraulis {
namespace {

constexpr double kMilliseconds = 1e3;
constexpr double kGibibyte = 1024.0 * 1024 * 1024;

/// Errors of some rows.
struct Errors {
  std::int64_t rows = 0;
  double sum_abs = 0;
  double sum = 0;
  double max_abs = 0;
  double formula_sum_abs = 0;
  std::int64_t memory_rows = 0;
  double memory_sum_abs = 0;

  void add(const PublicRow& row, const PublicPrediction& prediction) {
    const double error = prediction.seconds / row.measured_seconds - 1;
    ++rows;
    sum += error;
    sum_abs += std::abs(error);
    max_abs = std::max(max_abs, std::abs(error));
    formula_sum_abs += std::abs(prediction.formula_seconds / row.measured_seconds - 1);
    if (prediction.bytes) {
      ++memory_rows;
      memory_sum_abs += std::abs(*prediction.bytes / *row.measured_bytes - 1);
    }
  }

  std::vector<Cell> cells(const std::string& name) const {
    const auto count = static_cast<double>(rows);
    Cell memory;
    if (memory_rows > 0) memory = memory_sum_abs / static_cast<double>(memory_rows);
    return {name, rows, sum_abs / count, sum / count, max_abs, formula_sum_abs / count, memory};
  }
};

Table row_table(const PublicRows& rows, const Validation& validation) {
  Table table;
  table.title = "Predicted against measured";
  table.columns = {{"line", "line", 0},
                   {"model", "model", 0, Align::left},
                   {"layout", "layout, micro-batches", 0, Align::left},
                   {"measured_ms", "measured ms", 1},
                   {"predicted_ms", "predicted ms", 1},
                   {"error", "error", 3},
                   {"formula_ms", "formula ms", 1},
                   {"formula_error", "formula error", 3},
                   {"measured_gib", "measured GiB", 2},
                   {"predicted_gib", "predicted GiB", 2},
                   {"memory_error", "memory error", 4}};
  for (std::size_t i = 0; i < rows.rows.size(); ++i) {
    const PublicRow& row = rows.rows[i];
    const PublicPrediction& prediction = validation.predictions[i];
    Cell measured, predicted, error;
    if (prediction.bytes) {
      measured = *row.measured_bytes / kGibibyte;
      predicted = *prediction.bytes / kGibibyte;
      error = *prediction.bytes / *row.measured_bytes - 1;
    }
    table.rows.push_back(
        {static_cast<std::int64_t>(row.line), row.model_name, row.layout,
         row.measured_seconds * kMilliseconds, prediction.seconds * kMilliseconds,
         prediction.seconds / row.measured_seconds - 1, prediction.formula_seconds * kMilliseconds,
         prediction.formula_seconds / row.measured_seconds - 1, measured, predicted, error});
  }
  return table;
}

Table total_table(const PublicRows& rows, const Validation& validation) {
  std::vector<std::pair<std::string, Errors>> groups;
  Errors all;
  for (std::size_t i = 0; i < rows.rows.size(); ++i) {
    const PublicRow& row = rows.rows[i];
    auto found = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& group) { return group.first == row.model_name; });
    if (found == groups.end()) found = groups.insert(groups.end(), {row.model_name, {}});
    found->second.add(row, validation.predictions[i]);
    all.add(row, validation.predictions[i]);
  }
  Table table;
  table.title = "Errors, relative to the measured value";
  table.columns = {{"model", "model", 0, Align::left},
                   {"rows", "rows", 0},
                   {"mean_abs_error", "mean |error|", 4},
                   {"mean_error", "mean error", 4},
                   {"max_abs_error", "max |error|", 4},
                   {"formula_mean_abs_error", "formula's mean |error|", 4},
                   {"memory_mean_abs_error", "memory mean |error|", 4}};
  for (const auto& [name, errors] : groups) table.rows.push_back(errors.cells(name));
  table.rows.push_back(all.cells("all"));
  return table;
}

std::string significant(double value) { return fmt::format("{:.4g}", value); }

Table parameter_table(const PublicDevice& device, const Validation& validation) {
  Table table;
  table.title = "Parameters";
  table.columns = {{"name", "name", 0, Align::left}, {"unit", "unit", 0, Align::left}};
  for (std::size_t i = 0; i < validation.fits.size(); ++i) {
    const std::string key = i == 0 ? "value" : fmt::format("value_{}", i + 1);
    table.columns.push_back({key, validation.fits[i].of});
  }
  table.columns.push_back({"meaning", "meaning", 0, Align::left});
  const auto add = [&](PublicParameter parameter) {
    const PublicParameterInfo& info = describe(parameter);
    std::vector<Cell> cells{std::string(info.key), std::string(info.unit)};
    for (const PublicFit& fit : validation.fits) {
      cells.emplace_back(significant(fit.values[static_cast<std::size_t>(parameter)]));
    }
    cells.emplace_back(std::string(info.meaning));
    table.rows.push_back(std::move(cells));
  };
  for (const PublicParameter parameter : device.times) add(parameter);
  for (const PublicParameter parameter : device.memory) add(parameter);
  std::vector<Cell> formula{std::string("formula"), std::string("1")};
  for (const PublicFit& fit : validation.fits) {
    formula.emplace_back(significant(fit.formula_efficiency));
  }
  formula.emplace_back(std::string("efficiency of the one-line FLOPs formula"));
  table.rows.push_back(std::move(formula));
  return table;
}

}  // namespace

Report validate_report(const PublicRows& rows, const PublicDevice& device,
                       const Validation& validation) {
  Table table = row_table(rows, validation);
  Table totals = total_table(rows, validation);
  Table parameters = parameter_table(device, validation);
  totals.notes.push_back(fmt::format("device {}: {}", device.name, device.origin));
  if (validation.fits.size() > 1) {
    totals.notes.push_back("every row is predicted by a fit that has not seen its group");
  } else if (validation.fits.front().rows > 0) {
    totals.notes.push_back(fmt::format("fitted on the {} rows of {}", validation.fits.front().rows,
                                       validation.fits.front().of));
  } else {
    totals.notes.push_back(fmt::format(
        "shipped parameters, fitted to {}; the formula's efficiency is fitted to the rows above",
        device.fitted_to));
  }
  if (!rows.unused_columns.empty()) {
    totals.notes.push_back(
        fmt::format("columns not used: {}", fmt::join(rows.unused_columns, ", ")));
  }
  Json json = Json::object();
  json["rows"] = to_json(table);
  json["totals"] = to_json(totals);
  json["parameters"] = to_json(parameters);
  for (const char* key : {"mean_abs_error", "formula_mean_abs_error", "memory_mean_abs_error"}) {
    json[key] = json["totals"].back()[key];
  }
  json["device"] = device.name;
  json["notes"] = totals.notes;
  return {std::move(json), {std::move(table), std::move(parameters), std::move(totals)}};
}

}  // namespace hydraulis
