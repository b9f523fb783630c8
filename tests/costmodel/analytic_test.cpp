#include "costmodel/analytic.h"

#include <gtest/gtest.h>

#include <cmath>

#include "costmodel/build_cost_model.h"

namespace hydraulis {
namespace {

SchemeCoefficients row(const Profile& profile, const std::string& text) {
  const Scheme wanted = parse_scheme(text, "test");
  for (const SchemeCoefficients& candidate : profile.schemes) {
    if (candidate.scheme == wanted) return candidate;
  }
  ADD_FAILURE() << text << " is missing";
  return {};
}

TEST(Analytic, CalibrationIsPhysical) {
  const detail::Calibration& fit = detail::calibration();
  EXPECT_EQ(fit.rows, 38);
  for (const double factor : {fit.matrix_factor, fit.attention_factor, fit.communication_factor}) {
    EXPECT_GT(factor, 1);  // nothing is faster than its data sheet
    EXPECT_LT(factor, 3);
  }
}

// The error is computed again here from the tables and the finished profile.
TEST(Analytic, ReproducesTheMeasuredTables) {
  double error_a = 0;
  double error_b = 0;
  double error_c = 0;
  int rows_a = 0;
  int rows = 0;
  for (const char* name : {"llama-7b", "llama-13b", "llama-32b"}) {
    const Profile measured = load_profile(std::string("a800-") + name);
    const ClusterSpec cluster = load_cluster("a800-64");
    const Profile analytic = analytic_profile(measured.model, cluster);
    for (const SchemeCoefficients& m : measured.schemes) {
      if (std::string(name) == "llama-32b" && m.scheme.devices() == 2) continue;
      const SchemeCoefficients p = row(analytic, to_string(m.scheme));
      const auto ideal = detail::ideal_times(measured.model, cluster, m.scheme);
      if (m.a > ideal.attention_per_token2) {
        error_a += std::abs(p.a / m.a - 1);
        ++rows_a;
      }
      error_b += std::abs(p.b / m.b - 1);
      error_c += std::abs(p.c / m.c - 1);
      ++rows;
    }
  }
  const detail::Calibration& fit = detail::calibration();
  EXPECT_EQ(rows, fit.rows);
  EXPECT_EQ(rows_a, fit.attention_rows);
  EXPECT_NEAR(error_a / rows_a, fit.mean_error_a, 1e-9);
  EXPECT_NEAR(error_b / rows, fit.mean_error_b, 1e-9);
  EXPECT_NEAR(error_c / rows, fit.mean_error_c, 1e-9);
  RecordProperty("mean_error_a", std::to_string(error_a / rows_a));
  RecordProperty("mean_error_b", std::to_string(error_b / rows));
  EXPECT_LT(error_a / rows_a, 0.10);
  EXPECT_LT(error_b / rows, 0.04);
  EXPECT_LT(error_c / rows, 0.20);
}

// One layer by hand: h 4, f 8, 2 heads of 32, 1 KV head, V 16 on a device of 312 TFLOP/s.
TEST(Analytic, IdealTimesByHand) {
  const ModelSpec model{"tiny", 2, 4, 8, 2, 1, 32, 16, false, false, false};
  const ClusterSpec cluster = load_cluster("a800-16");
  const auto one = detail::ideal_times(model, cluster, parse_scheme("(1,1,2)", "test"));
  EXPECT_DOUBLE_EQ(one.attention_per_token2, 3.5 * 2 * 64 / 312e12);
  EXPECT_DOUBLE_EQ(one.matrices_per_token, 6.0 * (2 * 4 * 64 + 2 * 4 * 32 + 96 + 64) / 312e12);
  EXPECT_DOUBLE_EQ(one.communication_per_token, 0);
  EXPECT_DOUBLE_EQ(one.layers, 1);
  const auto two = detail::ideal_times(model, cluster, parse_scheme("(1,2,1)", "test"));
  // 4 all-reduces x 2·(tp-1)/tp x 2 bytes x h, 2 layers, over 200 GB/s.
  EXPECT_DOUBLE_EQ(two.communication_per_token, 4 * 2 * 2 * 4 * 0.5 * 2 / 200e9);
  const auto ring = detail::ideal_times(model, cluster, parse_scheme("(2,1,1)", "test"));
  // 3 passes of keys and values: 2 tensors x 2 bytes x 32, half the tokens each, 2 layers.
  EXPECT_DOUBLE_EQ(ring.communication_per_token, 3.0 * 2 * 2 * 32 * 2 / 2 / 200e9);
  EXPECT_DOUBLE_EQ(ring.attention_per_token2, one.attention_per_token2);
}

TEST(Analytic, ScalesAsItShould) {
  const ModelSpec model = load_model("llama-3.1-8b");
  const Profile h100 = analytic_profile(model, load_cluster("h100-64"));
  const Profile a800 = analytic_profile(model, load_cluster("a800-64"));
  EXPECT_TRUE(h100.analytic);
  EXPECT_NE(h100.origin.find("analytic"), std::string::npos);
  EXPECT_NEAR(row(a800, "(1,1,1)").b / row(h100, "(1,1,1)").b, 989.0 / 312, 1e-9);
  EXPECT_GT(row(a800, "(2,1,1)").b, row(a800, "(1,1,1)").b / 2);
  EXPECT_LT(row(a800, "(2,1,1)").b, row(a800, "(1,1,1)").b);
  EXPECT_GT(row(a800, "(1,4,2,recompute=full)").b, row(a800, "(1,4,2)").b * 1.25);
  EXPECT_LT(row(a800, "(1,4,2,recompute=full)").b, row(a800, "(1,4,2)").b * 1.5);
  EXPECT_DOUBLE_EQ(row(a800, "(1,4,2,recompute=full)").c, row(a800, "(1,4,2)").c * 4 / 3);
  EXPECT_NO_THROW(check_profile(h100, "h100"));
}

TEST(Analytic, ExcludedSchemesHaveReasons) {
  // 40 heads: 16 does not divide; 8 KV heads.
  const auto reasons = excluded_schemes(load_model("qwen2.5-14b"), load_cluster("a800-64"));
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_EQ(reasons[0], "tp=16: 40 attention heads do not divide by 16");
  // 4 heads and 2 KV heads: tp 4 repeats KV heads and is allowed, tp 8 is not.
  const ModelSpec tiny = load_model(std::string(HYDRAULIS_TEST_DATA) + "/hf_configs/tiny_ok.json");
  const ClusterSpec cluster = load_cluster("a800-16");
  EXPECT_EQ(excluded_schemes(tiny, cluster).size(), 6u);  // tp 8, 16 and pp 3, 4, 6, 8
  const Profile profile = analytic_profile(tiny, cluster);
  EXPECT_GT(row(profile, "(1,4,1)").b, 0);
  bool noted = false;
  for (const std::string& limit : profile.limits) {
    noted = noted || limit.find("above 2 repeat key/value heads") != std::string::npos;
  }
  EXPECT_TRUE(noted);
  for (const SchemeCoefficients& known : profile.schemes) EXPECT_LE(known.scheme.tp, 4);
}

}  // namespace
}  // namespace hydraulis
