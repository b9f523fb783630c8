// `--profile` with a profile of operators.
#include "costmodel/operator_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/command.h"
#include "tests/costmodel/synthetic_machine.h"

namespace hydraulis {
namespace {

using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

constexpr const char* kConfig = R"({
  "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 6,
  "hidden_size": 256, "intermediate_size": 704, "num_attention_heads": 8,
  "num_key_value_heads": 4, "vocab_size": 2048, "tie_word_embeddings": false})";
constexpr const char* kCluster = R"({
  "name": "desk", "origin": "test", "nodes": 1, "devices_per_node": 4,
  "device": {"name": "synthetic", "memory_gib": 4, "peak_bf16_teraflops": 0.05,
             "memory_bandwidth_gigabytes_per_second": 10, "reserved_gib": 0.1},
  "intra_node": {"bandwidth_gigabytes_per_second": 2, "latency_microseconds": 7}})";

class OperatorProfileCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    write_text_file(command_.folder() / "config.json", kConfig);
    write_text_file(command_.folder() / "cluster.json", kCluster);
    std::string lengths;
    for (int i = 1; i <= 400; ++i) lengths += std::to_string(16 + (i * 7919) % 1500) + "\n";
    write_text_file(command_.folder() / "lengths.txt", lengths);
    write_operator_profile(
        testing::measure(testing::SyntheticMachine(), testing::tiny_model(), 1024),
        command_.folder() / "p.h5");
  }

  Arguments plan(const char* context, const Arguments& more = {}) const {
    Arguments arguments = {"plan",         "--model",   "config.json", "--cluster",
                           "cluster.json", "--profile", "p.h5",        "--trace",
                           "lengths.txt",  "--context", context,       "--tokens-per-batch",
                           "16384",        "-o",        "plan.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  Arguments run(const char* subcommand, const Arguments& more = {}) const {
    Arguments arguments = {subcommand,    "--plan",       "plan.json", "--trace",
                           "lengths.txt", "--iterations", "3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  Command command_;
};

TEST_F(OperatorProfileCommand, PlansAssignsSimulatesAndCompares) {
  const Outcome planned = command_.run(plan("1024", {"--verbose", "--over-context", "truncate"}));
  ASSERT_EQ(planned.code, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("measured profile synthetic"));
  EXPECT_THAT(planned.out, HasSubstr("composed from operators"));
  EXPECT_THAT(planned.out, ::testing::Not(HasSubstr("times are extrapolated:")));
  const Json simulated =
      command_.json(run("simulate", {"--over-context", "truncate", "--no-communication"}));
  EXPECT_GT(simulated.at("mean_ms").get<double>(), 0);
  const Json loud = command_.json(run("simulate", {"--over-context", "truncate"}));
  EXPECT_GT(loud.at("mean_ms").get<double>(), simulated.at("mean_ms").get<double>());
  const Outcome compared = command_.run(
      run("compare", {"--over-context", "truncate", "--policies", "static-pack,hydraulis"}));
  EXPECT_EQ(compared.code, 0) << compared.err;
  const Outcome assigned = command_.run(
      {"assign", "--plan", "plan.json", "--lengths", "lengths.txt", "--over-context", "truncate"});
  EXPECT_EQ(assigned.code, 0) << assigned.err;
}

// Case B11 as a user meets it.
TEST_F(OperatorProfileCommand, SaysWhenTheContextIsBeyondWhatWasMeasured) {
  const Outcome planned = command_.run(plan("2048"));
  ASSERT_EQ(planned.code, 0) << planned.err;
  const char* said = "sequences of up to 2048 tokens, 1024 were measured";
  EXPECT_THAT(planned.out, HasSubstr(said));
  for (const Arguments& arguments :
       {run("simulate"), run("compare", {"--policies", "static-pack"}),
        Arguments{"assign", "--plan", "plan.json", "--lengths", "lengths.txt"}}) {
    const Outcome outcome = command_.run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr(said)) << arguments[0];
  }
}

TEST_F(OperatorProfileCommand, AnotherDevicesTimesAreCalledAnalytic) {
  std::string cluster = kCluster;
  cluster.replace(cluster.find("\"synthetic\""), 11, "\"newer\"");
  write_text_file(command_.folder() / "cluster.json", cluster);
  const Outcome planned = command_.run(plan("1024", {"--verbose", "--over-context", "truncate"}));
  ASSERT_EQ(planned.code, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("analytic profile synthetic"));
  EXPECT_THAT(planned.out, HasSubstr("carried over to newer by data sheet"));
}

}  // namespace
}  // namespace hydraulis
