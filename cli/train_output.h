#pragma once

#include <string>

#include "base/json.h"
#include "runtime/dry_run.h"
#include "runtime/trainer.h"

namespace hydraulis {

/// Aligned lines of a training run, one a step under one heading.
std::string step_heading();
std::string step_line(const StepReport& report);
Json step_json(const StepReport& report);

std::string to_text(const TrainSummary& summary);
Json to_json(const TrainSummary& summary);

std::string to_text(const DryRun& run);
Json to_json(const DryRun& run);

}  // namespace hydraulis
