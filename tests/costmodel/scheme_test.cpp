#include "costmodel/scheme.h"

#include <gtest/gtest.h>

#include "tests/costmodel/expect_error.h"

namespace hydraulis {
namespace {

TEST(Scheme, PrintsAndParses) {
  for (const std::string text :
       {"(1,16,1)", "(2,4,3)", "(1,4,2,recompute=full,layers=15+17)", "(1,1,1,recompute=selective)",
        "(1,2,3,layers=1+2+3)", "(1,4,2,group=1)"}) {
    EXPECT_EQ(to_string(parse_scheme(text, "test")), text);
  }
  const Scheme scheme = parse_scheme(" ( 1, 4 ,2, layers = 15 + 17 , recompute=none) ", "test");
  EXPECT_EQ(to_string(scheme), "(1,4,2,layers=15+17)");
  EXPECT_EQ(scheme.devices(), 8);
}

TEST(Scheme, RefusesWhatIsNoScheme) {
  for (const std::string text : {"",
                                 "(",
                                 ")",
                                 "()",
                                 "(1,2)",
                                 "1,2,3",
                                 "(1,2,3",
                                 "(0,1,1)",
                                 "(1,-1,1)",
                                 "(1,1,x)",
                                 "(1,1,1.5)",
                                 "(1,1,1,)",
                                 "(1,1,1,recompute=some)",
                                 "(1,1,2,layers=3)",
                                 "(1,1,2,layers=3+)",
                                 "(1,1,2,layers=3+0)",
                                 "(1,1,1,colour=red)",
                                 "(1048576,2,1)",
                                 "(1,1,99999999999999999999)",
                                 "(1,1,1,recompute=full,recompute=full)",
                                 "(1,1,1,group=-1)",
                                 "(1,1,1,group=1,group=1)",
                                 "(1024,1024,2)"}) {
    expect_error<InputError>([&] { parse_scheme(text, "--strategies"); },
                             {"--strategies", "expected"});
  }
}

TEST(Scheme, EveryLayerOnce) {
  const auto split = [](int layers, int pp) {
    Scheme scheme;
    scheme.pp = pp;
    return stage_layers(scheme, layers);
  };
  EXPECT_EQ(split(30, 4), (std::vector<int>{8, 8, 7, 7}));
  EXPECT_EQ(split(10, 3), (std::vector<int>{4, 3, 3}));
  EXPECT_EQ(split(7, 2), (std::vector<int>{4, 3}));
  EXPECT_EQ(split(62, 4), (std::vector<int>{16, 16, 15, 15}));
  EXPECT_EQ(split(4, 4), (std::vector<int>{1, 1, 1, 1}));
  EXPECT_THROW(split(3, 4), InputError);
}

TEST(Scheme, OwnSplitMustFit) {
  const Scheme scheme = parse_scheme("(1,1,2,layers=15+17)", "test");
  EXPECT_EQ(stage_layers(scheme, 32), (std::vector<int>{15, 17}));
  expect_error<InputError>([&] { stage_layers(scheme, 33); }, {"32 layers", "expected 33"});
}

}  // namespace
}  // namespace hydraulis
