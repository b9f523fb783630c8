#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/scheme.h"

namespace hydraulis {

/// Pipeline schedules that lowering knows.
enum class Schedule : std::uint8_t {
  one_f_one_b,
  gpipe,
  interleaved,  ///< 1F1B over several runs of layers a stage (Narayanan et al., arXiv 2104.04473)
  zero_bubble_h1,  ///< backward in two parts, no more alive than under 1F1B (arXiv 2401.10241, H1)
  zero_bubble,     ///< backward in two parts, list scheduled under the memory limit
  unequal,         ///< whole backwards, list scheduled for the micro-batches' own times
};

/// A schedule, with the runs of layers ("chunks", virtual stages) each stage holds: more than one
/// only where it is interleaved.
struct ScheduleChoice {
  Schedule schedule = Schedule::one_f_one_b;
  int chunks = 1;
  bool operator==(const ScheduleChoice&) const = default;
};

/// "1f1b", "gpipe", "interleaved:2", "zb-h1", "zb", "unequal".
std::string to_string(const ScheduleChoice& choice);
/// The same back; "interleaved" alone is 2 chunks. `where` names the option or field in the
/// InputError for anything else.
ScheduleChoice parse_schedule(const std::string& text, const std::string& where);
/// All of them with what they are, one a line, for --help.
std::string schedule_help();

/// Whether the order of a stage's work depends on the times of the micro-batches.
bool needs_times(Schedule schedule);

/// What a choice comes to on one scheme: on a single stage there is nothing to interleave.
ScheduleChoice on_scheme(const ScheduleChoice& choice, const Scheme& scheme);

/// Layers of each virtual stage, [chunk · pp + stage]: a stage's layers split evenly over its
/// chunks. Throws InputError when a stage has fewer layers than chunks.
std::vector<int> virtual_stage_layers(const Scheme& scheme, int model_layers, int chunks);

}  // namespace hydraulis
