#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "sim/results.h"

namespace hydraulis {

/// What the page says beside the results themselves.
struct HtmlContext {
  std::string title;
  std::vector<std::string> notes;
};

/// Events of kept iterations that a page holds at most: the timelines of further runs are left out,
/// which the page says.
inline constexpr std::size_t kMostEventsOfPage = 200'000;

/// The page's data block: what report/page/report.js draws.
Json html_data(const Results& results, const HtmlContext& context);

/// One self-contained page, written atomically: styles, chart library, script and data are inside,
/// nothing is loaded from anywhere. The same results give the same bytes.
void write_html_report(const Results& results, const HtmlContext& context,
                       const std::filesystem::path& path);

/// Results from what `compare --json`, `simulate --json` or `sweep --json` printed: summaries and,
/// of `simulate`, iterations. Throws InputError when it is none of these.
Results results_from_json(const Json& json, const std::string& where);

}  // namespace hydraulis
