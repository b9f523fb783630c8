#include "sim/tune_time.h"

#include <algorithm>
#include <vector>

namespace hydraulis {
namespace {

/// Seconds after `from` in which none of the spans runs, up to `to`.
double idle_after(std::vector<Span> spans, double from, double to) {
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.start < b.start; });
  double idle = 0;
  double covered = from;
  for (const Span& span : spans) {
    if (!(span.end > span.start)) continue;
    idle += std::max(0.0, std::min(span.start, to) - covered);
    covered = std::max(covered, span.end);
  }
  return idle + std::max(0.0, to - covered);
}

}  // namespace

TimeShares& TimeShares::operator+=(const TimeShares& other) {
  compute += other.compute;
  communication += other.communication;
  bubble += other.bubble;
  waiting += other.waiting;
  unused += other.unused;
  return *this;
}

TimeShares TimeShares::scaled(double factor) const {
  return {compute * factor, communication * factor, bubble * factor, waiting * factor,
          unused * factor};
}

TimeShares where_time_went(const Program& program, const Replay& replay) {
  std::vector<double> computed(program.pipelines.size(), 0);
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const Stage& stage = program.stages[s];
    for (std::size_t i = 0; i < stage.instructions.size(); ++i) {
      // The optimizer step computes too, but no pipeline is late because of it.
      const Instruction& instruction = stage.instructions[i];
      if (instruction.stream != StreamKind::compute || instruction.micro_batch < 0) continue;
      double& end = computed[static_cast<std::size_t>(stage.pipeline)];
      end = std::max(end, replay.spans[s][i].end);
    }
  }
  TimeShares sum;
  double used = 0;
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    const Stage& stage = program.stages[s];
    const StageReplay& did = replay.stages[s];
    const auto devices = static_cast<double>(stage.devices.size());
    const double waiting =
        std::min(did.idle_seconds,
                 idle_after(replay.spans[s], computed[static_cast<std::size_t>(stage.pipeline)],
                            replay.makespan_seconds));
    sum.compute += devices * did.compute_seconds;
    sum.communication += devices * did.exposed_communication_seconds;
    sum.bubble += devices * (did.idle_seconds - waiting);
    sum.waiting += devices * waiting;
    used += devices;
  }
  sum.unused = (program.devices - used) * replay.makespan_seconds;
  return program.devices > 0 ? sum.scaled(1.0 / program.devices) : TimeShares{};
}

}  // namespace hydraulis
