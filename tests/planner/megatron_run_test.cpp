#include "planner/megatron_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/atomic_file.h"
#include "base/error.h"
#include "planner/strategy.h"
#include "tests/base/temporary_folder.h"

namespace hydraulis {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kModel =
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32 --swiglu "
    "--untie-embeddings-and-output-weights --disable-bias-linear --normalization RMSNorm "
    "--vocab-size 32000 --use-distributed-optimizer --sequence-parallel ";
const std::string kBatch = "--seq-length 4096 --micro-batch-size 2 --global-batch-size 64 ";

class MegatronRunTest : public ::testing::Test {
 protected:
  MegatronRun run(const std::string& text, const std::string& cluster = "a800-32") {
    write_text_file(path_.string(), text);
    return read_megatron_run(path_, load_cluster(cluster));
  }
  std::string problem(const std::string& text, const std::string& cluster = "a800-32") {
    try {
      run(text, cluster);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "pretrain.sh";
};

TEST_F(MegatronRunTest, DegreesBatchAndScheduleBecomeAPlan) {
  const MegatronRun found =
      run(kModel + kBatch +
          "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 "
          "--num-layers-per-virtual-pipeline-stage 4 --recompute-granularity full "
          "--recompute-method uniform --recompute-num-layers 1");
  EXPECT_EQ(found.strategies, "4x(1,4,2,recompute=full)");
  EXPECT_EQ(found.context, 4096U);
  EXPECT_EQ(found.tokens_per_batch, 64U * 4096);
  EXPECT_EQ(found.max_tokens, 2 * 4096);
  EXPECT_EQ(to_string(found.schedule), "interleaved:4");
  EXPECT_TRUE(found.notes.empty()) << found.notes.front();
  const auto strategies = parse_strategies(found.strategies, "test");
  ASSERT_EQ(strategies.size(), 1U);
  EXPECT_EQ(devices(strategies[0]), 32);
  EXPECT_EQ(load_model(found.model).layers, 32);
}

TEST_F(MegatronRunTest, ContextParallelismUnevenStagesAndDefaults) {
  const MegatronRun found =
      run(kModel +
          "--seq-length 8192 --micro-batch-size 1 --context-parallel-size 2 "
          "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 7 "
          "--decoder-last-pipeline-num-layers 5 --recompute-activations");
  EXPECT_EQ(found.strategies, "4x(2,1,4,recompute=selective,layers=7+10+10+5)");
  EXPECT_EQ(found.tokens_per_batch, 4U * 8192);
  EXPECT_EQ(to_string(found.schedule), "1f1b");
  EXPECT_EQ(parse_strategies(found.strategies, "test")[0][0].layers.size(), 4U);
}

TEST_F(MegatronRunTest, UnknownArgumentsAndOtherReadingsAreListed) {
  const MegatronRun found =
      run("--num-layers 4 --hidden-size 256 --num-attention-heads 4 --vocab-size 1000 "
          "--tensor-model-parallel-size 2 --overlap-grad-reduce --new-thing 4 --lr 1 " +
          kBatch);
  EXPECT_THAT(found.notes, Contains(HasSubstr("left aside: --new-thing")));
  EXPECT_THAT(found.notes, Contains(HasSubstr("--use-distributed-optimizer")));
  EXPECT_THAT(found.notes, Contains(HasSubstr("--sequence-parallel")));
  EXPECT_THAT(found.notes, Contains(HasSubstr("--overlap-grad-reduce")));
  EXPECT_THAT(found.notes, Not(Contains(HasSubstr("--lr"))));
}

TEST_F(MegatronRunTest, ContradictionsAreRefusedByName) {
  const std::string base = kModel + kBatch;
  EXPECT_THAT(problem(base + "--nnodes 2 --nproc-per-node 8"),
              HasSubstr("2 nodes of 8 processes, but the cluster a800-32 has 32 devices"));
  EXPECT_THAT(problem(base + "--tensor-model-parallel-size 3"),
              HasSubstr("--tensor-model-parallel-size: tp 3 times pp 1 times cp 1"));
  EXPECT_THAT(
      problem(base + "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 5"),
      HasSubstr("--num-layers-per-virtual-pipeline-stage"));
  EXPECT_THAT(
      problem(base + "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 32"),
      HasSubstr("32 layers do not divide over 2 stages"));
  EXPECT_THAT(problem(base + "--num-layers-per-virtual-pipeline-stage 4"),
              HasSubstr("needs --pipeline-model-parallel-size above 1"));
  EXPECT_THAT(problem(kModel + "--seq-length 4096 --micro-batch-size 3 --global-batch-size 64"),
              HasSubstr("--global-batch-size: 64 sequences do not divide"));
  EXPECT_THAT(problem(kModel + "--seq-length 4097 --micro-batch-size 1 --context-parallel-size 2"),
              HasSubstr("--seq-length: 4097"));
  EXPECT_THAT(problem(kModel + "--micro-batch-size 1"), HasSubstr("--seq-length is missing"));
  EXPECT_THAT(problem(base + "--recompute-granularity some"),
              HasSubstr("expected full or selective"));
  EXPECT_THAT(problem(base + "--recompute-granularity full --recompute-method block "
                             "--recompute-num-layers 1"),
              HasSubstr("--recompute-num-layers: 1 of 32"));
  EXPECT_THAT(problem(base + "--pipeline-model-parallel-size 4 "
                             "--decoder-first-pipeline-num-layers 6"),
              HasSubstr("26 of 32 layers are left for 3 other stages"));
}

TEST_F(MegatronRunTest, WhatIsNotSimulatedIsRefusedByName) {
  const std::string base = kModel + kBatch;
  for (const char* argument :
       {"--use-torch-fsdp2", "--fp8-format hybrid", "--pipeline-model-parallel-layout E|t*3|L",
        "--cpu-offloading", "--optimizer-cpu-offload", "--account-for-loss-in-pipeline-split"}) {
    const std::string name = std::string(argument).substr(0, std::string(argument).find(' '));
    EXPECT_THAT(problem(base + argument), HasSubstr("line 1, " + name)) << argument;
  }
}

}  // namespace
}  // namespace hydraulis
