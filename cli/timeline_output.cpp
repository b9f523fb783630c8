#include "cli/timeline_output.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/error.h"

namespace hydraulis {

void check_timeline_name(const std::string& name) {
  if (name.empty() || name.ends_with(".json") || name.ends_with(".json.gz") ||
      name.ends_with(".h5")) {
    return;
  }
  throw InputError("--timeline: {}, expected a name that ends in .json, .json.gz or .h5", name);
}

void write_timeline(const Timeline& timeline, const std::string& name) {
  if (name.ends_with(".h5")) {
    write_timeline_hdf5(timeline, name);
    return;
  }
  constexpr std::uint64_t kViewersStruggle = 200u << 20;
  const std::uint64_t bytes = write_chrome_trace(timeline, name);
  if (bytes > kViewersStruggle) {
    fmt::print(stderr, "hydraulis: warning: {}: {} MB, more than viewers open well; use .json.gz\n",
               name, bytes >> 20);
  }
}

}  // namespace hydraulis
