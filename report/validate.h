#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/report.h"
#include "report/validate_model.h"

namespace hydraulis {

struct ValidateOptions {
  /// Column to leave one group out at a time by; empty: not.
  std::string leave_one_out;
  /// Rows to fit on instead of the shipped parameters; null: shipped ones.
  const PublicRows* fit_on = nullptr;
};

struct PublicPrediction {
  double seconds = 0;
  double formula_seconds = 0;
  std::optional<double> bytes;  ///< where allocated memory was measured
};

/// Parameters that a fit found and those of the one-line formula.
struct PublicFit {
  std::string of;  ///< what it was fitted on, for people
  PublicValues values{};
  double formula_efficiency = 0;
  std::size_t rows = 0;  ///< 0: shipped
};

struct Validation {
  std::vector<PublicPrediction> predictions;  ///< by row
  std::vector<PublicFit> fits;                ///< one, or one a group left out
};

/// Fits the device's parameters to the rows. The formula gets one efficiency fitted to them too.
PublicFit fit_public(const std::vector<PublicRow>& rows, const PublicDevice& device,
                     const std::string& of);

/// Predicts every row: with the shipped parameters, with those fitted to other rows, or leaving one
/// group out at a time. The formula's efficiency is fitted to what the parameters are fitted to
/// (with shipped ones: to the very rows, in the formula's favour). Throws InputError when a group
/// that is left out leaves nothing.
Validation validate(const PublicRows& rows, const PublicDevice& device,
                    const ValidateOptions& options);

/// `validate`: JSON {rows[{line, model, layout, measured_ms, predicted_ms, error, formula_ms,
/// formula_error, measured_gib, predicted_gib, memory_error}], totals[{model, rows, mean_abs_error,
/// mean_error, max_abs_error, formula_mean_abs_error, memory_mean_abs_error}] (the last of all
/// rows), parameters[{name, unit, value, meaning, ...}], mean_abs_error, formula_mean_abs_error,
/// device, notes}. CSV: the rows.
Report validate_report(const PublicRows& rows, const PublicDevice& device,
                       const Validation& validation);

}  // namespace hydraulis
