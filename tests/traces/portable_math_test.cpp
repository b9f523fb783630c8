#include "traces/portable_math.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hydraulis {
namespace {

double relative(double value, double expected) {
  return expected == 0 ? std::abs(value) : std::abs(value - expected) / std::abs(expected);
}

TEST(PortableMath, ExpMatchesTheLibrary) {
  for (double x = -700; x <= 700; x += 0.37) {
    EXPECT_LT(relative(portable::exp(x), std::exp(x)), 2e-15) << x;
  }
  EXPECT_EQ(portable::exp(0), 1);
  EXPECT_EQ(portable::exp(-800), 0);
  EXPECT_TRUE(std::isinf(portable::exp(800)));
}

TEST(PortableMath, LogMatchesTheLibrary) {
  for (double x = 1e-300; x < 1e300; x *= 1.73) {
    EXPECT_LT(relative(portable::log(x), std::log(x)), 1e-15) << x;
  }
  for (double x = 0.9; x < 1.1; x += 0.00093) {
    EXPECT_LT(relative(portable::log(x), std::log(x)), 1e-14) << x;
  }
  EXPECT_EQ(portable::log(1), 0);
}

TEST(PortableMath, PowMatchesTheLibrary) {
  for (double y = -3; y <= 3; y += 0.1) {
    EXPECT_LT(relative(portable::pow(1234.5, y), std::pow(1234.5, y)), 2e-14) << y;
  }
}

TEST(PortableMath, NormalCdfMatchesErfc) {
  for (double z = -37; z <= 37; z += 0.0317) {
    EXPECT_LT(relative(portable::normal_cdf(z), 0.5 * std::erfc(-z / std::sqrt(2.0))), 3e-13) << z;
  }
  for (double z = -5; z <= 5; z += 0.0137) {
    EXPECT_LT(relative(portable::normal_cdf(z), 0.5 * std::erfc(-z / std::sqrt(2.0))), 1e-14) << z;
  }
}

TEST(PortableMath, QuantileInvertsTheCdf) {
  EXPECT_EQ(portable::normal_quantile(0.5), 0);
  EXPECT_NEAR(portable::normal_quantile(0.975), 1.9599639845400542, 1e-13);
  EXPECT_NEAR(portable::normal_quantile(1e-10), -6.361340902404056, 1e-12);
  for (double p = 1e-12; p < 1; p = p < 0.01 ? p * 1.7 : p + 0.0031) {
    EXPECT_LT(relative(portable::normal_cdf(portable::normal_quantile(p)), p), 1e-14) << p;
  }
}

}  // namespace
}  // namespace hydraulis
