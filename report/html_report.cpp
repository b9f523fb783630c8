#include "report/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/atomic_file.h"
#include "base/error.h"
#include "report/page_assets.h"

namespace hydraulis {
namespace {

constexpr double kMilliseconds = 1e3;
constexpr double kNanosecondsPerMillisecond = 1e6;

/// Milliseconds to the nanosecond, so that a page of many events stays small.
double short_ms(double seconds) {
  return std::round(seconds * kMilliseconds * kNanosecondsPerMillisecond) /
         kNanosecondsPerMillisecond;
}

std::string axis_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string label(const Results& results, const ResultRun& run) {
  if (results.axes.empty()) return run.policy;
  std::string text;
  for (std::size_t a = 0; a < results.axes.size(); ++a) {
    const std::string& axis = results.axes[a];
    const std::string name = axis.substr(axis.rfind('.') + 1);
    if (!text.empty()) text += ", ";
    text += axis == "policy" ? axis_text(run.axis_values[a])
                             : fmt::format("{} {}", name, axis_text(run.axis_values[a]));
  }
  return text;
}

Json summary_json(const ResultRun& run) {
  const RunSummary& summary = run.summary;
  return {{"mean_ms", summary.mean_seconds * kMilliseconds},
          {"p95_ms", summary.p95_seconds * kMilliseconds},
          {"tokens_per_second", summary.tokens_per_second},
          {"mfu", summary.mfu},
          {"bubble_share", summary.bubble_share},
          {"exposed_communication_ms", summary.exposed_communication_seconds * kMilliseconds},
          {"memory_bytes", summary.memory_bytes},
          {"device_hours_per_billion_tokens", run.device_hours_per_billion_tokens()}};
}

Json iterations_json(const ResultRun& run) {
  Json json = {{"time_ms", Json::array()}, {"strategy", Json::array()}, {"tokens", Json::array()}};
  for (const IterationResult& iteration : run.iterations) {
    json["time_ms"].push_back(iteration.time_seconds * kMilliseconds);
    json["strategy"].push_back(iteration.strategy);
    json["tokens"].push_back(iteration.tokens);
  }
  return json;
}

Json kept_json(const KeptIteration& kept, bool with_events) {
  Json json = {{"iteration", kept.iteration},
               {"memory_limit_bytes", kept.memory_limit_bytes},
               {"stages", Json::array()}};
  for (const StageResult& stage : kept.stages) {
    const StageReplay& times = stage.times;
    const StageMemory& memory = stage.memory;
    json["stages"].push_back(
        {{"pipeline", stage.pipeline},
         {"index", stage.index},
         {"scheme", stage.scheme},
         {"compute_ms", times.compute_seconds * kMilliseconds},
         {"exposed_communication_ms", times.exposed_communication_seconds * kMilliseconds},
         {"idle_ms", times.idle_seconds * kMilliseconds},
         {"memory",
          {{"optimizer", memory.optimizer},
           {"parameters", memory.parameters},
           {"gradients", memory.gradients},
           {"activations", memory.activations},
           {"logits", memory.logits},
           {"buffers", memory.buffers},
           {"constant", memory.constant}}}});
  }
  if (!with_events) return json;
  Json& events = json["events"];
  for (const char* name : {"stage", "op", "stream", "micro_batch", "start_ms", "end_ms", "bytes"}) {
    events[name] = Json::array();
  }
  for (const TimelineEvent& event : kept.timeline.events) {
    events["stage"].push_back(event.stage);
    events["op"].push_back(static_cast<int>(event.op));
    events["stream"].push_back(static_cast<int>(event.stream));
    events["micro_batch"].push_back(event.micro_batch);
    events["start_ms"].push_back(short_ms(event.start_seconds));
    events["end_ms"].push_back(short_ms(event.end_seconds));
    events["bytes"].push_back(event.bytes);
  }
  return json;
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '<':
        result += "&lt;";
        break;
      case '&':
        result += "&amp;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

/// JSON that may stand inside a script element.
std::string script_json(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "\\u003c";
    } else {
      result += c;
    }
  }
  return result;
}

double number_or_zero(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : 0;
}

RunSummary summary_of(const Json& json) {
  RunSummary summary;
  summary.mean_seconds = number_or_zero(json, "mean_ms") / kMilliseconds;
  summary.p95_seconds = number_or_zero(json, "p95_ms") / kMilliseconds;
  summary.tokens_per_second = number_or_zero(json, "tokens_per_second");
  summary.mfu = number_or_zero(json, "mfu");
  summary.bubble_share = number_or_zero(json, "bubble_share");
  summary.exposed_communication_seconds =
      number_or_zero(json, "exposed_communication_ms") / kMilliseconds;
  summary.memory_bytes = number_or_zero(json, "memory_bytes");
  return summary;
}

std::string text_or_empty(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// An array of objects under a key, or nothing.
const Json* objects(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array()) return nullptr;
  const bool all = std::ranges::all_of(*found, [](const Json& each) { return each.is_object(); });
  return all ? &*found : nullptr;
}

void add_iterations(const Json& json, const std::string& where, ResultRun& run) {
  for (const Json& strategy : json.value("strategies", Json::array())) {
    run.strategies.push_back(strategy.is_string() ? strategy.get<std::string>() : strategy.dump());
  }
  for (const Json& each : *objects(json, "iterations")) {
    IterationResult iteration;
    iteration.time_seconds = number_or_zero(each, "time_ms") / kMilliseconds;
    const double strategy = number_or_zero(each, "strategy");
    if (!(strategy >= 0 && strategy < static_cast<double>(run.strategies.size()))) {
      throw InputError("{}: field 'iterations': an iteration has strategy {} of {}", where,
                       strategy, run.strategies.size());
    }
    iteration.strategy = static_cast<int>(strategy);
    iteration.tokens =
        static_cast<std::uint64_t>(std::clamp(number_or_zero(each, "tokens"), 0.0, 1e18));
    run.iterations.push_back(iteration);
  }
}

}  // namespace

Json html_data(const Results& results, const HtmlContext& context) {
  Json data = {{"name", results.name}, {"axes", results.axes}, {"notes", context.notes}};
  data["ops"] = Json::array();
  for (int i = 0; i <= static_cast<int>(Op::barrier); ++i) {
    data["ops"].push_back(to_string(static_cast<Op>(i)));
  }
  data["streams"] = Json::array();
  for (int i = 0; i < kStreams; ++i) {
    data["streams"].push_back(to_string(static_cast<StreamKind>(i)));
  }
  data["runs"] = Json::array();
  std::size_t events = 0;
  std::size_t left_out = 0;
  for (const ResultRun& run : results.runs) {
    Json json = {{"label", label(results, run)},
                 {"axis", run.axis_values},
                 {"outcome", to_string(run.outcome)},
                 {"message", run.message},
                 {"policy", run.policy},
                 {"remark", run.remark},
                 {"model", run.model},
                 {"profile", run.profile},
                 {"analytic", run.analytic},
                 {"provenance", run.provenance},
                 {"devices", run.devices},
                 {"summary", summary_json(run)},
                 {"iterations", iterations_json(run)},
                 {"strategies", run.strategies}};
    if (run.kept) {
      const std::size_t count = run.kept->timeline.events.size();
      const bool fits = events + count <= kMostEventsOfPage;
      if (fits) events += count;
      if (!fits) ++left_out;
      json["kept"] = kept_json(*run.kept, fits);
    }
    data["runs"].push_back(std::move(json));
  }
  if (left_out > 0) {
    data["notes"].push_back(
        fmt::format("the timelines of {} runs are left out here (over {} events)", left_out,
                    kMostEventsOfPage));
  }
  return data;
}

void write_html_report(const Results& results, const HtmlContext& context,
                       const std::filesystem::path& path) {
  const std::string title = escaped(context.title);
  const std::string data = script_json(html_data(results, context));
  write_text_file(path, [&](const std::function<void(std::string_view)>& sink) {
    std::string_view rest = detail::kPageTemplate;
    while (true) {
      const std::size_t begin = rest.find('@');
      const std::size_t end = begin == std::string_view::npos ? begin : rest.find('@', begin + 1);
      if (end == std::string_view::npos) break;
      sink(rest.substr(0, begin));
      const std::string_view name = rest.substr(begin + 1, end - begin - 1);
      if (name == "TITLE") sink(title);
      if (name == "STYLE") sink(detail::kPageStyle);
      if (name == "DATA") sink(data);
      if (name == "CHART") sink(detail::kChartLibrary);
      if (name == "SCRIPT") sink(detail::kPageScript);
      rest.remove_prefix(end + 1);
    }
    sink(rest);
  });
}

Results results_from_json(const Json& json, const std::string& where) {
  Results results;
  results.name = std::filesystem::path(where).stem().string();
  const auto add = [&](const Json& from) -> ResultRun& {
    ResultRun run;
    run.settings = Json::object();
    run.summary = summary_of(from);
    run.devices = static_cast<int>(std::clamp(number_or_zero(json, "devices"), 0.0, 1e9));
    if (const Json* sources = objects(from, "provenance")) run.provenance = *sources;
    if (const Json* sources = objects(json, "provenance")) run.provenance = *sources;
    results.runs.push_back(std::move(run));
    return results.runs.back();
  };
  if (!json.is_object()) throw InputError("{}: expected an object", where);
  if (const Json* policies = objects(json, "policies")) {
    for (const Json& policy : *policies) {
      ResultRun& run = add(policy);
      run.policy = text_or_empty(policy, "name");
      run.message = text_or_empty(policy, "infeasible");
      if (!run.message.empty()) run.outcome = RunOutcome::infeasible;
    }
  } else if (objects(json, "iterations") != nullptr) {
    ResultRun& run = add(json);
    run.policy = "simulated";
    add_iterations(json, where, run);
  } else if (objects(json, "points") != nullptr && json.contains("axes") &&
             json.at("axes").is_array()) {
    for (const Json& axis : json.at("axes")) results.axes.push_back(axis_text(axis));
    for (const Json& point : *objects(json, "points")) {
      ResultRun& run = add(point);
      for (const std::string& axis : results.axes) {
        run.axis_values.push_back(point.value(axis, Json()));
      }
      const std::string outcome = text_or_empty(point, "outcome");
      run.outcome = outcome == "done"         ? RunOutcome::done
                    : outcome == "infeasible" ? RunOutcome::infeasible
                                              : RunOutcome::invalid;
      run.message = text_or_empty(point, "message");
      run.profile = text_or_empty(point, "profile");
      run.analytic = point.value("analytic", false);
      run.policy = text_or_empty(point, "policy");
      run.devices = static_cast<int>(std::clamp(number_or_zero(point, "devices"), 0.0, 1e9));
    }
  } else {
    throw InputError("{}: expected the output of compare --json, simulate --json or sweep --json",
                     where);
  }
  return results;
}

}  // namespace hydraulis
