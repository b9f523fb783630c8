#pragma once

#include <string>

#include "costmodel/operator_profile.h"
#include "report/report.h"

namespace hydraulis {

/// `profile show`: tables of the machine, kernels (fastest rate, fit and how well it gives the
/// samples back), collectives (algbw and busbw as nccl-tests counts them, fit and residual of each
/// size), copies, what was left out and why; notes below. JSON {name, origin, machine, kernels[{
/// kernel, data_type, ..., samples[{tokens, length, median_us, ..., fit_us, residual}], fit}],
/// collectives[...], copies[...], ranks, excluded, notes}. CSV: the collectives. `where` names the
/// file in errors.
Report profile_report(const OperatorProfile& profile, const std::string& where);

}  // namespace hydraulis
