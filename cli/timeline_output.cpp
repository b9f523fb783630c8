#include "cli/timeline_output.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/atomic_file.h"
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

void write_memory_timeline(const Program& program,
                           const std::vector<std::vector<MemoryPoint>>& timeline,
                           const std::string& path) {
  constexpr double kMilliseconds = 1e3;
  std::string text =
      "time_ms,pipeline,stage,optimizer,parameters,gradients,activations,logits,buffers,constant,"
      "total\n";
  for (std::size_t s = 0; s < timeline.size(); ++s) {
    const Stage& stage = program.stages[s];
    for (const MemoryPoint& point : timeline[s]) {
      const StageMemory& memory = point.memory;
      text += fmt::format("{:.6f},{},{},{:.0f},{:.0f},{:.0f},{:.0f},{:.0f},{:.0f},{:.0f},{:.0f}\n",
                          point.seconds * kMilliseconds, stage.pipeline, stage.index,
                          memory.optimizer, memory.parameters, memory.gradients, memory.activations,
                          memory.logits, memory.buffers, memory.constant, memory.total());
    }
  }
  write_text_file(path, text);
}

}  // namespace hydraulis
