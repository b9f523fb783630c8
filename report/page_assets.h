#pragma once

#include <string_view>

namespace hydraulis::detail {

// Made from report/page and the chart library by report/embed.cmake.
extern const std::string_view kPageTemplate;  ///< with @TITLE@, @STYLE@, @DATA@, @CHART@, @SCRIPT@
extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;
extern const std::string_view kChartLibrary;

}  // namespace hydraulis::detail
