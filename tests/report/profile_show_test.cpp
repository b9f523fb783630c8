#include "report/profile_show.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "report/profile_plot.h"
#include "tests/report/profile_example.h"

namespace hydraulis {
namespace {

using test::example_profile;

TEST(ProfileReport, RatesResidualsAndWhatWasLeftOut) {
  const Report report = profile_report(example_profile(), "p.h5");
  const Json& json = report.json;
  const Json& product = json.at("kernels").at(0);
  EXPECT_EQ(product.at("kernel"), "gemm_forward");
  EXPECT_EQ(product.at("samples").size(), 5u);
  // 4,096 rows: 409.6 MFLOP in 2 + 4096 us.
  EXPECT_NEAR(product.at("best_flops").get<double>(), 409.6e6 / 4098e-6, 1e6);
  for (const Json& sample : product.at("samples")) {
    EXPECT_LT(std::abs(sample.at("residual").get<double>()), 0.02) << sample;
  }
  EXPECT_FALSE(product.at("fit").at("bad").get<bool>());
  const Json& reduce = json.at("collectives").back();
  EXPECT_EQ(reduce.at("bytes"), 1 << 24);
  const double algbw = (1 << 24) / (5e-6 + (1 << 24) / 10e9) * 1e-9;
  EXPECT_NEAR(reduce.at("algbw_gigabytes_per_second").get<double>(), algbw, 1e-6);
  EXPECT_NEAR(reduce.at("busbw_gigabytes_per_second").get<double>(), 1.5 * algbw, 1e-6);
  EXPECT_TRUE(reduce.at("checked").get<bool>());
  EXPECT_EQ(json.at("excluded").at(0).at("reason"), "data check failed");
  EXPECT_EQ(json.at("ranks").size(), 4u);
  const std::string text = to_text(report);
  for (const char* part : {"Profile example", "gemm_forward 100→500", "all_reduce", "busbw GB/s",
                           "Left out", "67108864", "a note", "2(n−1)/n", "made up"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
}

// Imported collectives have nothing else beside them.
TEST(ProfileReport, CollectivesAlone) {
  OperatorProfile profile = example_profile();
  profile.kernels.clear();
  profile.copies.clear();
  profile.ranks.clear();
  profile.machine.cores = 0;
  const Report report = profile_report(profile, "p.h5");
  EXPECT_TRUE(report.json.at("kernels").empty());
  EXPECT_EQ(to_text(report).find("Kernels"), std::string::npos);
  EXPECT_NE(profile_plots(profile, "p.h5", "").find("all_reduce, 4 ranks"), std::string::npos);
}

/// Column of a mark in each line of a drawing that has it.
std::vector<std::size_t> columns_of(const std::string& drawing, const std::string& mark) {
  std::vector<std::size_t> columns;
  for (std::size_t begin = 0; begin < drawing.size();) {
    const std::size_t end = std::min(drawing.find('\n', begin), drawing.size());
    const std::string line = drawing.substr(begin, end - begin);
    const std::size_t bar = line.find("│");
    const std::size_t found = line.find(mark, bar == std::string::npos ? 0 : bar);
    if (bar != std::string::npos && found != std::string::npos) {
      columns.push_back(display_width(line.substr(0, found)) - display_width(line.substr(0, bar)) -
                        1);
    }
    begin = end + 1;
  }
  return columns;
}

// y = x over three decades: a diagonal from the lower left to the upper right corner.
TEST(ProfilePlot, DrawsPointsOnTheirCurve) {
  Plot plot{
      "line", "x", "y", {{1, 1}, {10, 10}, {100, 100}, {1000, 1000}}, [](double x) { return x; }};
  const std::string drawing = draw(plot);
  EXPECT_EQ(columns_of(drawing, "•"), (std::vector<std::size_t>{63, 42, 21, 0}));
  plot.curve = [](double x) { return x / 1000; };
  EXPECT_EQ(columns_of(draw(plot), "o"), (std::vector<std::size_t>{63, 42, 21, 0}));
  EXPECT_NE(drawing.find("1.00k"), std::string::npos) << drawing;
  plot.points = {{5, 5}};
  EXPECT_NE(draw(plot).find("•"), std::string::npos);
}

TEST(ProfilePlot, ByName) {
  const OperatorProfile profile = example_profile();
  const std::string usual = profile_plots(profile, "p.h5", "");
  for (const char* part :
       {"gemm_forward 100→500", "attention 4/2", "all_reduce, 4 ranks on 1 node"}) {
    EXPECT_NE(usual.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(profile_plots(profile, "p.h5", "all_red").find("gemm"), std::string::npos);
  EXPECT_THROW(profile_plots(profile, "p.h5", "nothing of this"), InputError);
}

}  // namespace
}  // namespace hydraulis
