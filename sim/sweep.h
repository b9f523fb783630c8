#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "sim/results.h"

namespace hydraulis {

/// One point of a grid, before its names are looked up: the sweep file's fields without `grid`,
/// those of the grid set.
struct SweepPoint {
  Json settings;
  std::vector<Json> axis_values;  ///< one for each axis
};

/// A what-if grid: a base with any of its fields varied.
struct Sweep {
  std::string name;
  std::vector<std::string> axes;  ///< field paths such as "cluster.nodes", the slowest first
  std::vector<SweepPoint> points;
  std::filesystem::path folder;  ///< that relative paths of files are in
  std::string where;             ///< the sweep file, for messages
};

/// Reads a sweep file (docs/formats.md, "Sweep"); `where` names it in messages. Throws InputError
/// for fields that are unknown or of the wrong type; what makes no system is an outcome of its
/// points.
Sweep parse_sweep(const Json& json, const std::string& where, const std::filesystem::path& folder);

struct SweepOptions {
  int threads = 1;              ///< results are the same for any number
  std::filesystem::path parts;  ///< folder of finished points, for resuming; made if missing
  std::size_t shard = 0;        ///< only points with index % shards == shard are run
  std::size_t shards = 1;
  /// Called, one call at a time, with how many points are done and how many there are to do.
  std::function<void(std::size_t, std::size_t)> on_progress;
};

/// What run_sweep() did.
struct SweepRun {
  Results results;           ///< in the grid's order; of a shard, its own points
  std::size_t computed = 0;  ///< points run now
  std::size_t resumed = 0;   ///< points found in the folder of parts
};

/// Runs the points that the folder of parts does not hold yet, each planned (once for all policies)
/// and simulated, and gathers all. A point that does not fit or makes no system is recorded as such
/// with its reason; other errors end the sweep, and the points finished until then are kept.
SweepRun run_sweep(const Sweep& sweep, const SweepOptions& options);

}  // namespace hydraulis
