#include "planner/strategy.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace hydraulis {
namespace {

std::string message_of(const std::string& text) {
  try {
    parse_strategies(text, "--strategies");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Strategy, ParsesCountsSumsAndOptions) {
  const auto set = parse_strategies(
      "4x(1,16,1); (1,16,1)+6x(1,8,1) ;2 x (1,4,2,recompute=full,layers=15+17)", "here");
  ASSERT_EQ(set.size(), 3u);
  EXPECT_EQ(set[0], Strategy(4, Scheme{1, 16, 1, Recompute::none, {}}));
  ASSERT_EQ(set[1].size(), 7u);
  EXPECT_EQ(set[1][0].tp, 16);
  EXPECT_EQ(set[1][6].tp, 8);
  ASSERT_EQ(set[2].size(), 2u);
  EXPECT_EQ(set[2][1].recompute, Recompute::full);
  EXPECT_EQ(set[2][1].layers, (std::vector<int>{15, 17}));
  EXPECT_EQ(devices(set[0]), 64);
  EXPECT_EQ(devices(set[1]), 64);
  EXPECT_EQ(devices(set[2]), 16);
  EXPECT_TRUE(is_homogeneous(set[0]));
  EXPECT_FALSE(is_homogeneous(set[1]));
}

TEST(Strategy, PrintsWhatItParses) {
  for (const std::string text :
       {"4x(1,16,1)", "(1,16,1)+6x(1,8,1)", "2x(1,4,2,recompute=full,layers=15+17)+(1,1,1)"}) {
    const auto parsed = parse_strategies(text, "here");
    ASSERT_EQ(parsed.size(), 1u);
    EXPECT_EQ(to_string(parsed[0]), text);
  }
  EXPECT_EQ(to_string(parse_strategies("(1,2,1)+(1,2,1)+(1,4,1)", "here")[0]), "2x(1,2,1)+(1,4,1)");
}

TEST(Strategy, RefusesWithThePlaceAndWhatWasExpected) {
  EXPECT_NE(message_of("").find("character 1: expected a scheme"), std::string::npos);
  EXPECT_NE(message_of("(1,2,1);").find("character 9: expected a scheme"), std::string::npos);
  EXPECT_NE(message_of("(1,2,1)(1,2,1)").find("character 8: expected '+'"), std::string::npos);
  EXPECT_NE(message_of("4(1,2,1)").find("character 2: expected 'x'"), std::string::npos);
  EXPECT_NE(message_of("0x(1,2,1)").find("expected a number of pipelines"), std::string::npos);
  EXPECT_NE(message_of("(1,2,1)+(1,2").find("character 9: this parenthesis"), std::string::npos);
  EXPECT_NE(message_of("(1,2,1)+(1,0,1)").find("--strategies, character 9"), std::string::npos);
  EXPECT_NE(message_of("-1x(1,2,1)").find("character 1"), std::string::npos);
}

TEST(Strategy, RefusesHugeCountsWithoutMakingThem) {
  EXPECT_NE(message_of("99999999999999999999x(1,1,1)"), "");
  EXPECT_NE(message_of("65537x(1,1,1)"), "");
  EXPECT_NE(message_of("65536x(1,1024,1024)").find("devices"), std::string::npos);
  EXPECT_NE(message_of("65536x(1,1,1)+65536x(1,1,1)").find("pipelines"), std::string::npos);
  std::string many;
  for (int i = 0; i < 17; ++i) many += (i ? ";" : "") + std::string("65536x(1,1,1)");
  EXPECT_NE(message_of(many).find("in all"), std::string::npos);
  std::string semicolons = "(1,1,1)";
  for (int i = 0; i < 5000; ++i) semicolons += ";(1,1,1)";
  EXPECT_NE(message_of(semicolons).find("strategies"), std::string::npos);
}

}  // namespace
}  // namespace hydraulis
