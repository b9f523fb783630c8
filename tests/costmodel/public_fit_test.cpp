#include "costmodel/public_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "costmodel/public_parameters.h"
#include "tests/costmodel/expect_error.h"

namespace hydraulis {
namespace {

using Numbers = std::vector<double>;

Numbers line(std::span<const double> parameters) {
  Numbers y;
  for (int x = 1; x <= 20; ++x) y.push_back(parameters[0] * x + parameters[1]);
  return y;
}

TEST(PublicFit, FindsTheParametersThatMadeTheData) {
  const Numbers truth{3e-6, 2e-4};
  const Numbers found = fit_positive(line, line(truth), Numbers{1e-3, 1e-3}, {.prior = 1e-6});
  EXPECT_NEAR(found[0] / truth[0], 1, 1e-3);
  EXPECT_NEAR(found[1] / truth[1], 1, 1e-3);
}

TEST(PublicFit, ParametersStayPositiveWhereTheDataPointBelowZero) {
  Numbers y;
  for (int x = 1; x <= 20; ++x) y.push_back(2.0 * x - 1);
  const Numbers found = fit_positive(line, y, Numbers{1, 1}, {.prior = 1e-3});
  EXPECT_GT(found[1], 0);
  EXPECT_LT(found[1], 0.05);
  EXPECT_NEAR(found[0], 1.9, 0.1);
}

TEST(PublicFit, OneOddRowDoesNotBendTheRest) {
  Numbers y = line(Numbers{2, 5});
  y[7] *= 3;
  const Numbers found = fit_positive(line, y, Numbers{1, 1}, {.prior = 1e-6});
  EXPECT_NEAR(found[0], 2, 0.06);
  EXPECT_NEAR(found[1], 5, 0.2);
}

TEST(PublicFit, WhatTheRowsLeaveOpenStaysWhereItStarts) {
  const auto first_only = [](std::span<const double> p) { return Numbers(5, p[0]); };
  const Numbers found = fit_positive(first_only, Numbers(5, 4.0), Numbers{1, 7});
  EXPECT_NEAR(found[0], 4, 0.02);
  EXPECT_NEAR(found[1], 7, 1e-6);
}

TEST(PublicFit, NoParametersNoFit) { EXPECT_TRUE(fit_positive(line, {}, {}).empty()); }

TEST(AllReduceCurve, InterpolatesScalesWithTheGroupAndContinuesAtTheLastRate) {
  const AllReduceCurve curve{{{1e6, 1e-4}, {4e6, 4e-4}}, 8};
  EXPECT_DOUBLE_EQ(curve.seconds(1e6, 1), 0);
  EXPECT_DOUBLE_EQ(curve.seconds(0, 8), 0);
  EXPECT_DOUBLE_EQ(curve.seconds(1000, 8), 1e-4);
  EXPECT_NEAR(curve.seconds(2e6, 8), 2e-4, 1e-12);
  EXPECT_NEAR(curve.seconds(40e6, 8), 4e-3, 1e-12);
  // Two devices put size·2·(1/2) on the wire, eight size·2·(7/8).
  EXPECT_NEAR(curve.seconds(7e6, 2), curve.seconds(4e6, 8), 1e-12);
}

TEST(PublicDevice, HasPositiveValuesForWhatItFits) {
  for (const std::string& name : public_device_names()) {
    const PublicDevice& device = public_device(name);
    EXPECT_EQ(device.name, name);
    for (const auto& list : {device.times, device.memory}) {
      for (const PublicParameter parameter : list) {
        EXPECT_GT(device.fitted[static_cast<std::size_t>(parameter)], 0) << name;
      }
    }
    EXPECT_LE(device.times.size() + device.memory.size(), 10u) << "a handful";
  }
  EXPECT_THROW(public_device("a101"), InputError);
}

}  // namespace
}  // namespace hydraulis
