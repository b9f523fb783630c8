#include "costmodel/argument_list.h"

#include <gtest/gtest.h>

namespace hydraulis {
namespace {

/// "name=a b;other=": options in order with their values.
std::string shown(std::string_view text) {
  std::string result;
  for (const Argument& argument : parse_argument_list(text)) {
    result += (result.empty() ? "" : ";") + argument.name + "=";
    for (std::size_t i = 0; i < argument.values.size(); ++i) {
      result += (i > 0 ? " " : "") + argument.values[i];
    }
  }
  return result;
}

TEST(ArgumentList, OptionsOfAPlainListAndOfACommandOverSeveralLines) {
  EXPECT_EQ(shown("--num-layers 24\n--bf16\n--lr=1e-4"), "num-layers=24;bf16=;lr=1e-4");
  EXPECT_EQ(
      shown("torchrun --nproc_per_node 8 pretrain.py \\\n  --num-layers 24 \\\r\n --bf16 # x\n"
            "echo done --really"),
      "nproc-per-node=8 pretrain.py;num-layers=24;bf16=;really=");
  EXPECT_EQ(shown("python x.py --a 1 2>&1 | tee --append log"), "a=1 2>;append=log");
  EXPECT_EQ(shown(""), "");
  EXPECT_EQ(shown("no options - here -x -- ---"), "");
  EXPECT_EQ(parse_argument_list("\n\n--a 1\n").front().line, 3);
}

TEST(ArgumentList, VariablesThatHoldOptions) {
  EXPECT_EQ(
      shown("ARGS=(\n  --num-layers 24   # layers\n  --hidden-size \"4096\"\n)\nrun ${ARGS[@]}"),
      "num-layers=24;hidden-size=4096");
  EXPECT_EQ(shown("GPT=\"--num-layers 24 \\\n --bf16\n --tp 2\"\nrun $GPT"),
            "num-layers=24;bf16=;tp=2");
}

TEST(ArgumentList, WordsThatAreSetInTheFileAreReplaced) {
  EXPECT_EQ(shown("TP=4\nexport PP=${X:-2}\nrun --tp $TP --pp ${PP} --both ${TP}x$PP"),
            "tp=4;pp=2;both=4x2");
  EXPECT_EQ(shown("run --a $X --b ${Y[@]} --c $((2 * 3)) --d $1 --e ${Z"),
            "a=$X;b=${Y[@]};c=$((2 * 3));d=$1;e=${Z");
}

TEST(ArgumentList, NothingHostileBreaksIt) {
  for (const char* text :
       {"\\", "\"", "'", "$", "${", "$(", "(((", ")))", "=", "A=", "A=$A", "--a \\"}) {
    EXPECT_NO_THROW(parse_argument_list(text)) << text;
  }
  EXPECT_EQ(shown("A=$A\nrun --x $A"), "x=$A");
  std::string doubling = "A=ab\n";
  for (int i = 0; i < 200; ++i) doubling += "A=$A$A\n";
  EXPECT_LT(shown(doubling + "run --x $A").size(), 10'000);
}

}  // namespace
}  // namespace hydraulis
