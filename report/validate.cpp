#include "report/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "costmodel/public_fit.h"

namespace hydraulis {
namespace {

std::vector<double> start_of(const PublicDevice& device,
                             const std::vector<PublicParameter>& parameters) {
  std::vector<double> start;
  for (const PublicParameter p : parameters) {
    start.push_back(device.expected[static_cast<std::size_t>(p)]);
  }
  return start;
}

void put(PublicValues& values, const std::vector<PublicParameter>& parameters,
         std::span<const double> numbers) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    values[static_cast<std::size_t>(parameters[i])] = numbers[i];
  }
}

void fit_times(const std::vector<PublicRow>& rows, const PublicDevice& device, PublicFit& fit) {
  std::vector<PublicRowWork> works;
  std::vector<double> measured;
  for (const PublicRow& row : rows) {
    works.push_back(public_work(row, device));
    measured.push_back(row.measured_seconds);
  }
  const auto model = [&](std::span<const double> numbers) {
    PublicValues values = fit.values;
    put(values, device.times, numbers);
    std::vector<double> seconds;
    for (const PublicRowWork& work : works) seconds.push_back(predicted_seconds(work, values));
    return seconds;
  };
  put(fit.values, device.times, fit_positive(model, measured, start_of(device, device.times)));
}

void fit_memory(const std::vector<PublicRow>& rows, const PublicDevice& device, PublicFit& fit) {
  std::vector<const PublicRow*> with_memory;
  std::vector<double> measured;
  for (const PublicRow& row : rows) {
    if (!row.measured_bytes) continue;
    with_memory.push_back(&row);
    measured.push_back(*row.measured_bytes);
  }
  if (with_memory.empty()) return;
  const auto model = [&](std::span<const double> numbers) {
    PublicValues values = fit.values;
    put(values, device.memory, numbers);
    std::vector<double> bytes;
    for (const PublicRow* row : with_memory) bytes.push_back(predicted_bytes(*row, device, values));
    return bytes;
  };
  // Working memory is a few percent of all, and so are the errors that tell about it.
  constexpr PositiveFitOptions kSmallErrors{.prior = 0.01};
  put(fit.values, device.memory,
      fit_positive(model, measured, start_of(device, device.memory), kSmallErrors));
}

/// The efficiency with the least mean absolute error: the median of measured/formula with weights
/// formula/measured.
double formula_efficiency(const std::vector<PublicRow>& rows, const PublicDevice& device) {
  std::vector<double> efficiencies;  // formula/measured, each row's own and its weight
  double half = 0;
  for (const PublicRow& row : rows) {
    efficiencies.push_back(formula_seconds(row, device) / row.measured_seconds);
    half += efficiencies.back() / 2;
  }
  std::sort(efficiencies.begin(), efficiencies.end(), std::greater<>());
  for (const double efficiency : efficiencies) {
    half -= efficiency;
    if (half <= 0) return efficiency;
  }
  return efficiencies.back();
}

void predict(const PublicRow& row, const PublicDevice& device, const PublicFit& fit,
             PublicPrediction& prediction) {
  prediction.seconds = predicted_seconds(public_work(row, device), fit.values);
  prediction.formula_seconds = formula_seconds(row, device) / fit.formula_efficiency;
  if (row.measured_bytes && !device.memory.empty()) {
    prediction.bytes = predicted_bytes(row, device, fit.values);
  }
}

void leave_one_out(const PublicRows& rows, const PublicDevice& device, const std::string& column,
                   Validation& result) {
  std::vector<std::string> groups;
  for (const PublicRow& row : rows.rows) {
    const std::string group = group_of(row, column);
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  if (groups.size() < 2) {
    throw InputError("--leave-one-out {}: every row of {} has {}, expected at least two groups",
                     column, rows.path, groups.front());
  }
  for (const std::string& group : groups) {
    std::vector<PublicRow> others;
    for (const PublicRow& row : rows.rows) {
      if (group_of(row, column) != group) others.push_back(row);
    }
    result.fits.push_back(fit_public(others, device, fmt::format("without {} {}", column, group)));
    for (std::size_t i = 0; i < rows.rows.size(); ++i) {
      if (group_of(rows.rows[i], column) != group) continue;
      predict(rows.rows[i], device, result.fits.back(), result.predictions[i]);
    }
  }
}

}  // namespace

PublicFit fit_public(const std::vector<PublicRow>& rows, const PublicDevice& device,
                     const std::string& of) {
  PublicFit fit{of, device.expected, formula_efficiency(rows, device), rows.size()};
  fit_times(rows, device, fit);
  fit_memory(rows, device, fit);
  return fit;
}

Validation validate(const PublicRows& rows, const PublicDevice& device,
                    const ValidateOptions& options) {
  Validation result;
  result.predictions.resize(rows.rows.size());
  if (!options.leave_one_out.empty()) {
    leave_one_out(rows, device, options.leave_one_out, result);
    return result;
  }
  result.fits.push_back(
      options.fit_on == nullptr
          ? PublicFit{"shipped parameters", device.fitted, formula_efficiency(rows.rows, device), 0}
          : fit_public(options.fit_on->rows, device, options.fit_on->path));
  for (std::size_t i = 0; i < rows.rows.size(); ++i) {
    predict(rows.rows[i], device, result.fits.front(), result.predictions[i]);
  }
  return result;
}

}  // namespace hydraulis
