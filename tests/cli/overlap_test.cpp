// `--overlap`, and what compare says of planning.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/command.h"

namespace hydraulis {
namespace {

using Arguments = std::vector<std::string>;

class OverlapOption : public ::testing::Test {
 protected:
  void SetUp() override {
    write_lengths(command_.folder());
    const Outcome plan = command_.run(hand_plan());
    ASSERT_EQ(plan.code, 0) << plan.err;
  }

  static Arguments compare(const Arguments& more) {
    Arguments arguments = {"compare",
                           "--plan",
                           "plan.json",
                           "--trace",
                           "lengths.txt",
                           "--tokens-per-batch",
                           "100000",
                           "--iterations",
                           "2",
                           "--policies",
                           "static-pack,static-dispatch"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  Command command_;
};

TEST_F(OverlapOption, HidesWhatIsExposedWithoutIt) {
  const Json off = command_.json(compare({"--overlap", "off"}));
  const Json unsaid = command_.json(compare({}));
  const Json on = command_.json(compare({"--overlap", "on"}));
  for (std::size_t i = 0; i < 2; ++i) {
    const auto number = [i](const Json& json, const char* key) {
      return json.at("policies")[i].at(key).get<double>();
    };
    EXPECT_EQ(number(off, "mean_ms"), number(unsaid, "mean_ms"));
    EXPECT_LT(number(on, "mean_ms"), number(off, "mean_ms"));
    EXPECT_LT(number(on, "exposed_communication_ms"), number(off, "exposed_communication_ms") / 2);
    EXPECT_GT(number(on, "planning_ms"), 0);
    EXPECT_GE(number(on, "most_planning_ms"), number(on, "planning_ms"));
  }
  const Json steady = command_.json(compare({"--reproducible"}));
  EXPECT_FALSE(steady.at("policies")[0].contains("planning_ms"));
}

TEST_F(OverlapOption, RefusesOtherWords) {
  expect_refused(command_.run(compare({"--overlap", "yes"})), 2, "--overlap");
}

}  // namespace
}  // namespace hydraulis
