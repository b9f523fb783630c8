#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "costmodel/cost_model.h"
#include "sim/costing.h"

namespace hydraulis {

/// Where a number comes from.
enum class SourceKind : std::uint8_t {
  measured,    ///< by this project's profiler, or by others on the device named
  imported,    ///< somebody's measurement read from a file (nccl-tests)
  prior,       ///< a public model of how such machines behave, not of this one
  data_sheet,  ///< what the maker says, or worked out from it ("analytic")
  stated,      ///< by the user: a cluster file, an option
  assumed,     ///< nobody says; the detail says what was taken
};
inline constexpr int kSourceKinds = static_cast<int>(SourceKind::assumed) + 1;

/// One kind of number behind a result and where it comes from.
struct Source {
  std::string what;  ///< "stage times", "link between nodes", …
  SourceKind kind = SourceKind::measured;
  std::string detail;  ///< device, file, date, how it was carried over; for people
  bool operator==(const Source&) const = default;
};

/// Sources of everything that simulated results are made from: stage times (of a profile of
/// operators: matrix products, attention and row-wise kernels apart), tensor-parallel collectives
/// where they are timed by themselves, memory constant and peak rate; with `costing` and unless it
/// counts no communication also links, messages, collectives, optimizer step and shared cores.
/// A number that is of several kinds stands once for each. `profile_file`: what the profile was
/// loaded from, if the user named it.
std::vector<Source> sources_of(const CostModel& model, const CostingOptions* costing,
                               const std::string& profile_file = "");

const char* to_string(SourceKind kind);

/// [{what, source, detail}], as every --json has it under "provenance".
Json sources_json(const std::vector<Source>& sources);
/// "numbers: measured: stage times; data sheet: link inside a node, …": one line for people.
std::string sources_line(const std::vector<Source>& sources);

}  // namespace hydraulis
