#include "planner/schedule_choice.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr int kDefaultChunks = 2;
constexpr int kMostChunks = 64;

struct Name {
  Schedule schedule;
  const char* name;
  const char* summary;
};

constexpr std::array kNames = {
    Name{Schedule::one_f_one_b, "1f1b", "one forward, one backward in turn"},
    Name{Schedule::gpipe, "gpipe", "all forwards, then all backwards"},
    Name{Schedule::interleaved, "interleaved", "1F1B over :N runs of layers a stage (2)"},
    Name{Schedule::zero_bubble_h1, "zb-h1", "backward in two parts, memory as under 1F1B"},
    Name{Schedule::zero_bubble, "zb", "backward in two parts, as memory allows"},
    Name{Schedule::unequal, "unequal", "order and interleaving for unequal micro-batches"},
};

}  // namespace

std::string to_string(const ScheduleChoice& choice) {
  for (const Name& name : kNames) {
    if (name.schedule != choice.schedule) continue;
    if (choice.schedule != Schedule::interleaved) return name.name;
    return fmt::format("{}:{}", name.name, choice.chunks);
  }
  return "unknown";
}

ScheduleChoice parse_schedule(const std::string& text, const std::string& where) {
  const std::size_t colon = text.find(':');
  for (const Name& name : kNames) {
    if (text.substr(0, colon) != name.name) continue;
    if (name.schedule != Schedule::interleaved) {
      if (colon == std::string::npos) return {name.schedule, 1};
      throw InputError("{}: '{}': only interleaved takes a number", where, text);
    }
    int chunks = kDefaultChunks;
    if (colon != std::string::npos) {
      const char* end = text.data() + text.size();
      const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, chunks);
      if (error != std::errc() || stop != end || chunks < 2 || chunks > kMostChunks) {
        throw InputError("{}: '{}': expected interleaved:N with N from 2 to {}", where, text,
                         kMostChunks);
      }
    }
    return {Schedule::interleaved, chunks};
  }
  std::string known;
  for (const Name& name : kNames)
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name.name);
  throw InputError("{}: unknown schedule '{}', expected one of {}", where, text, known);
}

std::string schedule_help() {
  std::string text;
  for (const Name& name : kNames) text += fmt::format("  {:<18} {}\n", name.name, name.summary);
  return text;
}

bool needs_times(Schedule schedule) {
  return schedule == Schedule::zero_bubble || schedule == Schedule::unequal;
}

ScheduleChoice on_scheme(const ScheduleChoice& choice, const Scheme& scheme) {
  return {choice.schedule, scheme.pp == 1 ? 1 : choice.chunks};
}

std::vector<int> virtual_stage_layers(const Scheme& scheme, int model_layers, int chunks) {
  const std::vector<int> stages = stage_layers(scheme, model_layers);
  std::vector<int> layers;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int stage = 0; stage < scheme.pp; ++stage) {
      const int held = stages[static_cast<std::size_t>(stage)];
      if (held < chunks) {
        throw InputError("schedule interleaved:{}: stage {} of {} has {} layers, fewer than chunks",
                         chunks, stage, to_string(scheme), held);
      }
      layers.push_back(held / chunks + (chunk < held % chunks ? 1 : 0));
    }
  }
  return layers;
}

}  // namespace hydraulis
