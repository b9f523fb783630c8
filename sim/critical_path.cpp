#include "sim/critical_path.h"

#include <algorithm>
#include <array>

#include "sim/graph.h"

namespace hydraulis {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};

/// Seconds of each resource on the path.
std::array<double, kResources> path_of(const Program& program, const Durations& durations,
                                       const ReplayOptions& options, const Replay& replay) {
  const detail::Graph graph = detail::build_graph(program, durations, options);
  std::vector<Span> ran(graph.activities());
  std::vector<Resource> resource(graph.activities());
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    for (std::size_t i = 0; i < program.stages[s].instructions.size(); ++i) {
      const std::uint32_t a = graph.activity[graph.first_instruction[s] + i];
      ran[a] = replay.spans[s][i];
      resource[a] = resource_of(program.stages[s].instructions[i].op);
    }
  }
  // Of what each activity waits for, that which ended last.
  std::vector<std::uint32_t> last(graph.activities(), kNone);
  for (std::uint32_t a = 0; a < graph.activities(); ++a) {
    for (std::uint32_t i = graph.first_successor[a]; i < graph.first_successor[a + 1]; ++i) {
      std::uint32_t& before = last[graph.successors[i]];
      if (before == kNone || ran[a].end > ran[before].end) before = a;
    }
  }
  std::array<double, kResources> seconds{};
  if (ran.empty()) return seconds;
  const auto end = std::max_element(ran.begin(), ran.end(),
                                    [](const Span& a, const Span& b) { return a.end < b.end; });
  for (auto a = static_cast<std::uint32_t>(end - ran.begin()); a != kNone; a = last[a]) {
    seconds[static_cast<std::size_t>(resource[a])] += ran[a].end - ran[a].start;
  }
  return seconds;
}

double makespan_at(const Program& program, Durations durations, const ReplayOptions& options,
                   Resource faster, double scale) {
  for (std::size_t s = 0; s < program.stages.size(); ++s) {
    for (std::size_t i = 0; i < program.stages[s].instructions.size(); ++i) {
      if (resource_of(program.stages[s].instructions[i].op) == faster) {
        durations.seconds[s][i] *= scale;
      }
    }
  }
  return replay(program, durations, options).makespan_seconds;
}

}  // namespace

const char* to_string(Resource resource) {
  switch (resource) {
    case Resource::compute:
      return "compute";
    case Resource::pipeline:
      return "pipeline transfers";
    case Resource::parameters:
      return "parameter gather";
    case Resource::gradients:
      return "gradient reduction";
    case Resource::collectives:
      return "norm and barriers";
    case Resource::optimizer:
      return "optimizer step";
  }
  return "unknown";
}

Resource resource_of(Op op) {
  switch (op) {
    case Op::send_activation:
    case Op::receive_activation:
    case Op::send_gradient:
    case Op::receive_gradient:
      return Resource::pipeline;
    case Op::gather_parameters:
      return Resource::parameters;
    case Op::reduce_gradients:
      return Resource::gradients;
    case Op::gradient_norm:
    case Op::barrier:
    case Op::all_to_all:
      return Resource::collectives;
    case Op::optimizer_step:
      return Resource::optimizer;
    default:
      return Resource::compute;
  }
}

std::vector<ResourceShare> critical_path(const Program& program, const Durations& durations,
                                         const ReplayOptions& options) {
  const Replay now = replay(program, durations, options);
  const std::array<double, kResources> path = path_of(program, durations, options, now);
  std::vector<ResourceShare> shares;
  for (int r = 0; r < kResources; ++r) {
    ResourceShare share;
    share.resource = static_cast<Resource>(r);
    share.path_seconds = path[static_cast<std::size_t>(r)];
    if (now.makespan_seconds > 0) {
      const auto gain = [&](double scale) {
        return 1 - makespan_at(program, durations, options, share.resource, scale) /
                       now.makespan_seconds;
      };
      share.gain_twice_as_fast = gain(0.5);
      share.gain_if_free = gain(0);
    }
    shares.push_back(share);
  }
  return shares;
}

}  // namespace hydraulis
