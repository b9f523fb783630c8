#include "costmodel/megatron_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace hydraulis {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

MegatronArguments arguments_of(const std::string& text) {
  return {parse_argument_list(text), "run.sh"};
}

ModelSpec model_of(const std::string& text) {
  MegatronArguments arguments = arguments_of(text);
  std::vector<std::string> notes;
  return megatron_model(arguments, notes);
}

std::string problem_of(const std::string& text) {
  try {
    model_of(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

constexpr const char* kLlama =
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32 --swiglu "
    "--untie-embeddings-and-output-weights --disable-bias-linear --normalization RMSNorm "
    "--vocab-size 32000 --make-vocab-size-divisible-by 1 ";

TEST(MegatronArguments, LlamaHasItsParameters) {
  const ModelSpec model = model_of(kLlama);
  EXPECT_EQ(parameter_count(model), 6'738'415'616);
  EXPECT_EQ(model.kv_heads, 32);
  EXPECT_EQ(model.head_dim, 128);
  EXPECT_FALSE(model.tied_embeddings);
  EXPECT_EQ(model.name, "run");
}

TEST(MegatronArguments, DefaultsAreMegatrons) {
  const std::string bare = "--num-layers 2 --hidden-size 1024 --num-attention-heads 16 ";
  const ModelSpec model = model_of(bare + "--vocab-size 1000 --swiglu");
  EXPECT_EQ(model.ffn_hidden, 2688) << "4·1024·2/3 down to a multiple of 64";
  EXPECT_EQ(model.vocab, 1024) << "a multiple of 128";
  EXPECT_TRUE(model.tied_embeddings);
  EXPECT_TRUE(model.qkv_bias);
  EXPECT_EQ(model_of(bare + "--vocab-size 1000 --swiglu --tensor-model-parallel-size 4").vocab,
            1024);
  EXPECT_EQ(model_of(bare + "--vocab-size 1030 --swiglu --tensor-model-parallel-size 4").vocab,
            1536);
  EXPECT_EQ(model_of(bare + "--swiglu --tokenizer-type GPT2BPETokenizer").vocab, 50304);
  EXPECT_EQ(
      model_of(bare + "--vocab-size 1000 --group-query-attention --num-query-groups 4 --swiglu")
          .kv_heads,
      4);
  EXPECT_EQ(model_of(bare + "--vocab-size 1000 --kv-channels 128 --swiglu").head_dim, 128);
}

TEST(MegatronArguments, WhatIsTakenOtherwiseIsSaid) {
  MegatronArguments arguments =
      arguments_of("--num-layers 2 --hidden-size 1024 --num-attention-heads 16 --vocab-size 1000");
  std::vector<std::string> notes;
  const ModelSpec model = megatron_model(arguments, notes);
  EXPECT_EQ(model.ffn_hidden, 2752) << "two matrices of 4096 are three of 2731";
  EXPECT_THAT(notes,
              ElementsAre(HasSubstr("--swiglu"), HasSubstr("biases"), HasSubstr("LayerNorm")));
}

TEST(MegatronArguments, WhatIsNotSimulatedIsRefusedByName) {
  const std::string llama = kLlama;
  EXPECT_EQ(problem_of(llama), "");
  EXPECT_EQ(problem_of(llama + "--num-experts 1"), "");
  EXPECT_THAT(problem_of(llama + "--num-experts 8"), HasSubstr("run.sh: line 1, --num-experts"));
  EXPECT_THAT(problem_of(llama + "--multi-latent-attention"), HasSubstr("latent attention"));
  EXPECT_THAT(problem_of(llama + "--mtp-num-layers 1"), HasSubstr("multi-token"));
}

TEST(MegatronArguments, ContradictionsAndMissingOnesAreRefusedByName) {
  const std::string llama = kLlama;
  EXPECT_THAT(problem_of("--hidden-size 64"), HasSubstr("--num-layers is missing"));
  EXPECT_THAT(problem_of(llama + "\n--num-layers 24"), HasSubstr("given twice, on lines 1 and 2"));
  EXPECT_EQ(problem_of(llama + "--num-layers 32 --lr 1 --lr 2"), "");
  EXPECT_THAT(problem_of(llama + "--num-query-groups 8"), HasSubstr("--group-query-attention"));
  EXPECT_THAT(problem_of(llama + "--group-query-attention --num-query-groups 5"),
              HasSubstr("32 heads do not divide into 5 groups"));
  EXPECT_THAT(problem_of("--num-layers $L --hidden-size 64 --num-attention-heads 4"),
              HasSubstr("--num-layers is $L, which the file does not set"));
  EXPECT_THAT(problem_of("--num-layers 2.5"), HasSubstr("'2.5', expected a whole number"));
  EXPECT_THAT(problem_of("--num-layers 2 4"), HasSubstr("the values '2' and '4'"));
  EXPECT_THAT(problem_of("--num-layers"), HasSubstr("has no value"));
  EXPECT_THAT(problem_of("--num-layers 2 --hidden-size 100 --num-attention-heads 3"),
              HasSubstr("100 does not divide by 3 heads"));
  EXPECT_THAT(problem_of("--num-layers 2 --hidden-size 64 --num-attention-heads 4 --swiglu yes"),
              HasSubstr("expected none"));
  EXPECT_THAT(problem_of("--num-layers 2 --hidden-size 64 --num-attention-heads 4"),
              HasSubstr("--vocab-size is missing"));
  EXPECT_THAT(
      problem_of("--num-layers 2 --hidden-size 64 --num-attention-heads 4 --vocab-size 1000 "
                 "--make-vocab-size-divisible-by 268435456 --tensor-model-parallel-size 2"),
      HasSubstr("--vocab-size: padded to"));
}

TEST(MegatronArguments, OnlyArgumentsThatNobodyKnowsAreListed) {
  MegatronArguments arguments = arguments_of(
      std::string(kLlama) + "--lr 1 --save-interval 5 --frobnicate 3 --seq-length 4096");
  std::vector<std::string> notes;
  megatron_model(arguments, notes);
  EXPECT_THAT(arguments.unknown(), ElementsAre("--frobnicate", "--seq-length"));
  EXPECT_EQ(arguments.required("seq-length", 1, 1 << 20), 4096);
  EXPECT_THAT(arguments.unknown(), ElementsAre("--frobnicate"));
}

TEST(MegatronArguments, FilesWithoutArgumentsAreRefused) {
  EXPECT_THROW(read_megatron_arguments("/nonexistent/run.sh"), InputError);
  EXPECT_THROW(load_model("megatron:/nonexistent/run.sh"), InputError);
}

}  // namespace
}  // namespace hydraulis
