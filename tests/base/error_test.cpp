#include "base/error.h"

#include <gtest/gtest.h>

#include <string>

namespace hydraulis {
namespace {

TEST(Error, CarriesItsExitCode) {
  EXPECT_EQ(InputError("x").code(), ExitCode::bad_input);
  EXPECT_EQ(InfeasibleError("x").code(), ExitCode::infeasible);
  EXPECT_EQ(static_cast<int>(ExitCode::done), 0);
  EXPECT_EQ(static_cast<int>(ExitCode::internal), 1);
  EXPECT_EQ(static_cast<int>(ExitCode::bad_input), 2);
  EXPECT_EQ(static_cast<int>(ExitCode::infeasible), 3);
}

TEST(Error, FormatsItsMessage) {
  EXPECT_STREQ(InputError("{}: line {}", "a.txt", 7).what(), "a.txt: line 7");
  EXPECT_STREQ(InfeasibleError("{:.1f} GiB missing", 2.25).what(), "2.2 GiB missing");
}

TEST(Error, AFinishedMessageIsNotFormattedAgain) {
  const std::string hostile = "{}: {0} {nothing}";
  EXPECT_EQ(InputError(hostile).what(), hostile);
}

TEST(Error, IsCaughtByItsBases) {
  EXPECT_THROW(throw InputError("x"), Error);
  EXPECT_THROW(throw InfeasibleError("x"), std::runtime_error);
}

}  // namespace
}  // namespace hydraulis
