#include "runtime/run_logs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <tuple>

#include "base/error.h"
#include "planner/program/program_json.h"
#include "runtime/agreement.h"

namespace hydraulis {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Shortest text that reads back as the same number.
std::string number(double value) { return fmt::format("{}", value); }

/// A stream does one thing at a time: what was asked for while it was busy began when it was free.
void put_in_order(std::vector<TimelineEvent>& events) {
  std::ranges::sort(events, {}, [](const TimelineEvent& event) {
    return std::tuple(event.stage, event.stream, event.end_seconds, event.instruction);
  });
  for (std::size_t i = 1; i < events.size(); ++i) {
    const TimelineEvent& before = events[i - 1];
    TimelineEvent& event = events[i];
    if (event.stage != before.stage || event.stream != before.stream) continue;
    event.start_seconds = std::max(event.start_seconds, before.end_seconds);
  }
}

}  // namespace

RunLogs::RunLogs(const RunConfig& config, std::int64_t step)
    : steps_(
          config.output / "log.csv",
          {"loss", "gradient_norm", "learning_rate", "targets", "tokens", "seconds",
           "predicted_seconds", "planner_wait_seconds", "updated", "validation_loss", "strategy"},
          step),
      sequences_(config.output / "sequences.csv", {"sequence", "tokens"}, step),
      tensorboard_(config.output / "tensorboard", now_seconds(), "hydraulis") {}

void RunLogs::write(const StepReport& report, const Batch& batch) {
  steps_.write(
      report.step,
      {number(report.loss), number(report.gradient_norm), number(report.learning_rate),
       fmt::format("{}", report.targets), fmt::format("{}", report.tokens), number(report.seconds),
       number(report.predicted_seconds), number(report.waited_seconds), report.updated ? "1" : "0",
       report.validation_loss ? number(*report.validation_loss) : "", report.strategy});
  for (std::size_t i = 0; i < batch.ids.size(); ++i) {
    sequences_.write(report.step,
                     {fmt::format("{}", batch.ids[i]), fmt::format("{}", batch.lengths[i])});
  }
  std::vector<std::pair<std::string, double>> scalars = {
      {"train/loss", report.loss},
      {"train/gradient_norm", report.gradient_norm},
      {"train/learning_rate", report.learning_rate},
      {"speed/tokens_per_second", static_cast<double>(report.tokens) / report.seconds},
      {"speed/step_seconds", report.seconds},
      {"speed/predicted_step_seconds", report.predicted_seconds}};
  if (report.validation_loss) scalars.emplace_back("validation/loss", *report.validation_loss);
  tensorboard_.write(now_seconds(), report.step, scalars);
}

void write_step_program(const std::filesystem::path& folder, std::int64_t step,
                        const Program& program) {
  std::error_code ec;
  std::filesystem::create_directories(folder, ec);
  if (ec) throw InputError("{}: cannot make the folder: {}", folder.string(), ec.message());
  write_program(program, folder / fmt::format("step-{:08}.json", step));
}

void TimelineCollector::add(const Backend& backend, const Program& program,
                            const IterationOutcome& mine) {
  Json events = Json::array();
  const int rank = backend.world->rank();
  std::vector<TimelineEvent> own;
  std::ranges::copy_if(mine.events, std::back_inserter(own), [&](const TimelineEvent& event) {
    return program.stages[event.stage].devices.front() == rank;
  });
  put_in_order(own);
  for (const TimelineEvent& event : own) {
    events.push_back(
        Json::array({event.iteration, event.stage, event.instruction, static_cast<int>(event.op),
                     static_cast<int>(event.stream), event.micro_batch, event.start_seconds,
                     event.end_seconds, event.bytes}));
  }
  const std::vector<std::string> all = gather_texts(backend, events.dump());
  if (rank != 0) return;
  const int first_track = add_tracks(timeline_.tracks, program);
  // Iterations follow one another.
  double begin = 0;
  for (const TimelineEvent& event : timeline_.events) begin = std::max(begin, event.end_seconds);
  for (const std::string& text : all) {
    for (const Json& e : Json::parse(text)) {
      TimelineEvent event;
      event.iteration = e[0].get<int>();
      event.stage = first_track + e[1].get<int>();
      event.instruction = e[2].get<int>();
      event.op = static_cast<Op>(e[3].get<int>());
      event.stream = static_cast<StreamKind>(e[4].get<int>());
      event.micro_batch = e[5].get<int>();
      event.start_seconds = begin + e[6].get<double>();
      event.end_seconds = begin + e[7].get<double>();
      event.bytes = e[8].get<std::int64_t>();
      timeline_.events.push_back(event);
    }
  }
}

void TimelineCollector::write(const std::filesystem::path& path, const std::string& model) const {
  Timeline timeline = timeline_;
  timeline.origin = "measured";
  timeline.model_name = model;
  write_timeline_hdf5(timeline, path);
}

}  // namespace hydraulis
