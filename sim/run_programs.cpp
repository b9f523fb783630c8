#include "sim/run_programs.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <limits>
#include <utility>

#include "base/error.h"
#include "costmodel/node_groups.h"
#include "planner/program/program_json.h"
#include "planner/program/verify.h"

namespace hydraulis {
namespace {

namespace fs = std::filesystem;

/// The number at the end of "step-00000012", or `otherwise`.
int step_of(const std::string& stem, int otherwise) {
  constexpr std::size_t kMostDigits = 9;
  std::size_t begin = stem.size();
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(stem[begin - 1])) != 0) --begin;
  const std::size_t digits = stem.size() - begin;
  if (digits == 0 || digits > kMostDigits) return otherwise;
  return std::stoi(stem.substr(begin));
}

void expect_same(const StepProgram& step, const char* field, int value, int expected,
                 const std::string& whose) {
  if (value == expected) return;
  throw InputError("{}: field '{}' is {}, expected the {} of {}", step.file, field, value, expected,
                   whose);
}

void expect_sound(const StepProgram& step, const ModelSpec& model) {
  expect_same(step, "layers", step.program.layers, model.layers, "model " + model.name);
  const std::vector<std::string> problems = verify(step.program);
  if (problems.empty()) return;
  throw InputError("{}: {}{}", step.file, problems.front(),
                   problems.size() > 1 ? fmt::format(" (and {} more)", problems.size() - 1) : "");
}

Strategy strategy_of(const Program& program) {
  Strategy strategy;
  for (const PipelineProgram& pipeline : program.pipelines) strategy.push_back(pipeline.scheme);
  return strategy;
}

}  // namespace

std::vector<StepProgram> read_programs(const fs::path& path) {
  std::error_code ec;
  std::vector<fs::path> files;
  if (fs::is_directory(path, ec)) {
    for (const auto& entry : fs::directory_iterator(path, ec)) {
      if (entry.path().extension() == ".json") files.push_back(entry.path());
    }
    std::ranges::sort(files);
    if (files.empty()) {
      throw InputError(
          "{}: no program (.json) in the folder; `hydraulis train` writes those of "
          "its first timeline_steps steps into OUTPUT/programs",
          path.string());
    }
  } else {
    files.push_back(path);
  }
  std::vector<StepProgram> programs;
  for (std::size_t i = 0; i < files.size(); ++i) {
    programs.push_back({step_of(files[i].stem().string(), static_cast<int>(i)), files[i].string(),
                        read_program(files[i])});
  }
  std::ranges::stable_sort(programs, {}, &StepProgram::step);
  for (std::size_t i = 1; i < programs.size(); ++i) {
    if (programs[i].step != programs[i - 1].step) continue;
    throw InputError("{}: step {} stands in {} as well", programs[i].file, programs[i].step,
                     programs[i - 1].file);
  }
  return programs;
}

void expect_cluster(const std::vector<StepProgram>& programs, const ClusterSpec& cluster) {
  for (const StepProgram& step : programs) {
    const std::string whose = "cluster " + cluster.name;
    expect_same(step, "devices", step.program.devices, cluster.devices(), whose);
    expect_same(step, "devices_per_node", step.program.devices_per_node, cluster.devices_per_node,
                whose);
  }
}

ProgramRun simulate_programs(const std::vector<StepProgram>& programs, const CostModel& model,
                             const IterationOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  expect_cluster(programs, model.cluster);
  ProgramRun run;
  RunTotals totals;
  double start = 0;
  for (const StepProgram& step : programs) {
    expect_sound(step, model.model);
    SimulatedIteration one = simulate_program(step.program, model, options);
    const Strategy strategy = strategy_of(one.program);
    auto known = std::ranges::find(run.strategies, strategy);
    if (known == run.strategies.end()) {
      known = run.strategies.insert(run.strategies.end(), strategy);
    }
    one.result.strategy = static_cast<int>(known - run.strategies.begin());
    totals.add(one.result);
    run.result.iterations.push_back(one.result);
    Timeline timeline = make_timeline(one.program, one.replay, step.step);
    run.timeline.origin = timeline.origin;
    run.timeline.model_name = timeline.model_name;
    const int first_track = add_tracks(run.timeline.tracks, one.program);
    for (TimelineEvent& event : timeline.events) {
      event.stage += first_track;
      event.start_seconds += start;
      event.end_seconds += start;
      run.timeline.events.push_back(event);
    }
    start += one.result.time_seconds;
  }
  run.result.summary = totals.summary(model.cluster.devices(), mean_peak_flops(model.cluster));
  run.result.summary.wall_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return run;
}

}  // namespace hydraulis
