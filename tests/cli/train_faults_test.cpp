// What a user can get wrong: one line that names the file and the field, on any number of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/train_job.h"

namespace hydraulis {
namespace {

using testing::HasSubstr;

struct Fault {
  Json change;
  const char* told;
};

TEST(TrainFaults, EveryFieldOfTheRunFileIsChecked) {
  const TrainingFolder folder;
  folder.plan(1, "(1,1,1)");
  const Json one = {{"plan", "plan-1.json"}};
  const std::vector<Fault> faults = {
      {{{"plan", nullptr}}, "field 'plan'"},
      {{{"plan", 3}}, "field 'plan'"},
      {{{"plan", "absent.json"}}, "absent.json"},
      {{{"plan", "config.json"}}, "config.json"},
      {{{"output", nullptr}}, "field 'output'"},
      {{{"output", ""}}, "field 'output'"},
      {{{"output", 1}}, "field 'output'"},
      {{{"steps", nullptr}}, "field 'steps'"},
      {{{"steps", 0}}, "field 'steps'"},
      {{{"steps", -1}}, "field 'steps'"},
      {{{"steps", 1.5}}, "field 'steps'"},
      {{{"steps", "10"}}, "field 'steps'"},
      {{{"seed", -1}}, "field 'seed'"},
      {{{"data", nullptr}}, "field 'data'"},
      {{{"data", 1}}, "field 'data'"},
      {{{"data", {{"sets", nullptr}}}}, "field 'data.sets'"},
      {{{"data", {{"sets", Json::array()}}}}, "data.sets"},
      {{{"data", {{"sets", {1}}}}}, "data.sets[0]"},
      {{{"data", {{"sets", Json::array({{{"path", "absent.jsonl"}, {"tokenizer", "bytes"}}})}}}},
       "absent.jsonl"},
      {{{"data", {{"sets", Json::array({{{"path", "texts.jsonl"}}})}}}}, "texts.jsonl"},
      {{{"data", {{"sets", Json::array({{{"path", "texts.jsonl"}, {"tokenizer", "x"}}})}}}}, "'x'"},
      {{{"data", {{"held_out", 1}}}}, "field 'data.held_out'"},
      {{{"data", {{"context", 0}}}}, "field 'data.context'"},
      {{{"data", {{"over_context", "cut"}}}}, "cut"},
      {{{"data", {{"tokens_per_batch", 0}}}}, "tokens_per_batch"},
      {{{"data", {{"unknown", 0}}}}, "field 'data.unknown'"},
      {{{"policy", "best"}}, "best"},
      {{{"policy", "flexsp"}}, "\"flexsp\" is simulated only"},
      {{{"precision", "f16"}}, "field 'precision'"},
      {{{"optimizer", 1}}, "field 'optimizer'"},
      {{{"optimizer", {{"name", "sgd"}}}}, "field 'optimizer.name'"},
      {{{"optimizer", {{"learning_rate", 0}}}}, "field 'optimizer.learning_rate'"},
      {{{"optimizer", {{"beta1", 1}}}}, "field 'optimizer.beta1'"},
      {{{"optimizer", {{"beta2", -0.1}}}}, "field 'optimizer.beta2'"},
      {{{"optimizer", {{"epsilon", 0}}}}, "field 'optimizer.epsilon'"},
      {{{"optimizer", {{"weight_decay", -1}}}}, "field 'optimizer.weight_decay'"},
      {{{"optimizer", {{"clip_norm", -1}}}}, "field 'optimizer.clip_norm'"},
      {{{"optimizer", {{"momentum", 1}}}}, "field 'optimizer.momentum'"},
      {{{"schedule", {{"decay", "step"}}}}, "field 'schedule.decay'"},
      {{{"schedule", {{"warmup_steps", -1}}}}, "field 'schedule.warmup_steps'"},
      {{{"schedule", {{"decay_steps", 0.5}}}}, "field 'schedule.decay_steps'"},
      {{{"schedule", {{"minimum_learning_rate", 1}}}}, "field 'schedule.minimum_learning_rate'"},
      {{{"schedule", {{"warmup", 1}}}}, "field 'schedule.warmup'"},
      {{{"initial", "absent"}}, "absent"},
      {{{"validation", {{"every_steps", -1}}}}, "field 'validation.every_steps'"},
      {{{"validation", {{"batches", 0}}}}, "field 'validation.batches'"},
      {{{"validation", {{"every_steps", 2}}}}, "data.held_out"},
      {{{"checkpoint", {{"every_steps", "x"}}}}, "field 'checkpoint.every_steps'"},
      {{{"checkpoint", {{"keep", 0}}}}, "field 'checkpoint.keep'"},
      {{{"bad_steps", {{"policy", "ignore"}}}}, "field 'bad_steps.policy'"},
      {{{"bad_steps", {{"spike_factor", 0.5}}}}, "field 'bad_steps.spike_factor'"},
      {{{"bad_steps", {{"window", 0}}}}, "field 'bad_steps.window'"},
      {{{"bad_steps", {{"most_in_a_row", 0}}}}, "field 'bad_steps.most_in_a_row'"},
      {{{"threads", -1}}, "field 'threads'"},
      {{{"memory_limit_gib", -1}}, "field 'memory_limit_gib'"},
      {{{"timeout_seconds", 0}}, "field 'timeout_seconds'"},
      {{{"timeline_steps", -1}}, "field 'timeline_steps'"},
      {{{"learning_rate", 1}}, "field 'learning_rate'"},
  };
  for (const Fault& fault : faults) {
    Json change = one;
    change.update(fault.change);  // a null takes the field away
    folder.run_file("run.json", change);
    // mpirun takes a second for each: a rank alone needs none.
    const Outcome outcome = folder.run({"train", "run.json"});
    SCOPED_TRACE(fault.change.dump());
    expect_refused(outcome, 2, fault.told);
    EXPECT_FALSE(std::filesystem::exists(folder.folder() / "out/log.csv"));
    std::filesystem::remove_all(folder.folder() / "out");
  }
  // A schedule that only the simulator runs.
  Json plan = read_json_file(folder.folder() / "plan-1.json");
  plan["schedule"] = "zb";
  folder.folder().write("plan-zb.json", plan.dump());
  folder.run_file("run.json", {{"plan", "plan-zb.json"}});
  expect_refused(folder.run({"train", "run.json"}), 2, "plan-zb.json: field 'schedule'");
  folder.folder().write("run.json", "{\"plan\": \"plan-1.json\", \"steps\": 1, \"steps\": 2}");
  expect_refused(folder.run({"train", "run.json"}), 2, "steps");
  folder.folder().write("run.json", "{\"plan\": ");
  expect_refused(folder.run({"train", "run.json"}), 2, "run.json");
  folder.folder().write("run.json", "[]");
  expect_refused(folder.run({"train", "run.json"}), 2, "run.json");
  expect_refused(folder.run({"train", "absent.json"}), 2, "absent.json");
  expect_refused(folder.run({"train", "."}), 2, ".");
  expect_refused(folder.run({"train"}), 2, "RUN");
}

TEST(TrainFaults, RanksTellOnce) {
  const TrainingFolder folder;
  folder.plan(2, "2x(1,1,1)");
  folder.run_file("run.json", {{"steps", 0}});
  expect_one_error(folder.train(2, {"run.json"}), 2, "run.json: field 'steps'");
  folder.run_file("run.json", {});
  expect_one_error(folder.train(1, {"run.json"}), 3,
                   "the plan is for 2 devices, 1 ranks were started; start 2 (mpirun -n 2)");
  expect_one_error(folder.train(3, {"run.json"}), 3, "make a plan for 3");
}

TEST(TrainFaults, TokensOutsideTheVocabularyAreNamed) {
  const TrainingFolder folder;
  folder.plan(2, "2x(1,1,1)");
  folder.run_file(
      "run.json",
      {{"data",
        {{"sets",
          Json::array({{{"path", "texts.jsonl"}, {"tokenizer", "bytes"}, {"end_token", 270}}})}}}});
  const Outcome ended = folder.train(2, {"run.json"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("texts.jsonl: sequence "));
  EXPECT_THAT(ended.err, HasSubstr(" is 270, expected 0 to 269 by the vocabulary"));
}

TEST(TrainFaults, OutputsThatCannotBeWrittenAreNamed) {
  const TrainingFolder folder;
  folder.plan(2, "2x(1,1,1)");
  folder.folder().write("file", "");
  folder.run_file("run.json", {{"output", "file"}});
  expect_one_error(folder.train(2, {"run.json"}), 2, "file");
  folder.run_file("run.json", {{"output", "file/below"}});
  expect_one_error(folder.train(2, {"run.json"}), 2, "file/below");
  // Checkpoints find a file where their folder should be: the run ends, and says so.
  std::filesystem::create_directory(folder.folder() / "out");
  folder.folder().write("out/checkpoints", "");
  folder.run_file("run.json", {});
  expect_one_error(folder.train(2, {"run.json"}), 2, "out/checkpoints");
}

/// Rank 1 sees another file under the same name: the launcher starts it in another folder.
TEST(TrainFaults, AFileThatOneRankCannotReadIsTheEndOfAll) {
  const TrainingFolder folder;
  folder.plan(2, "2x(1,1,1)");
  folder.run_file("run.json", {});
  std::filesystem::create_directory(folder.folder() / "other");
  for (const char* name : {"run.json", "plan-2.json", "config.json", "cluster-2.json"}) {
    std::filesystem::copy_file(folder.folder() / name, folder.folder() / "other" / name);
  }
  folder.folder().write("start.sh",
                        "[ \"$OMPI_COMM_WORLD_RANK\" = 0 ] || cd other\n"
                        "exec " HYDRAULIS_COMMAND " train run.json\n");
  const Outcome ended = TrainingJob(folder, 2, {}, {"bash", "start.sh"}).wait();
  expect_one_error(ended, 2, "rank 1: texts.jsonl: ");
  EXPECT_FALSE(std::filesystem::exists(folder.folder() / "out/log.csv"));
}

}  // namespace
}  // namespace hydraulis
