#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/report.h"
#include "sim/results.h"

namespace hydraulis {

/// What stands beside a sweep's table.
struct SweepContext {
  std::size_t computed = 0;  ///< points run now
  std::size_t resumed = 0;   ///< points that were finished before
  std::vector<std::string> notes;
};

/// One row a run: the axes of the grid, what came of it, and its summary.
Report sweep_report(const Results& results, const SweepContext& context);

}  // namespace hydraulis
