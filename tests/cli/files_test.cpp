#include <gtest/gtest.h>

#include <sstream>

#include "tests/cli/command.h"

namespace hydraulis {
namespace {

/// A plan over one strategy and a small trace, in a folder of their own.
class FilesCommand : public ::testing::Test {
 protected:
  FilesCommand() {
    command_.folder().write("lengths.txt", "100\n200\n300\n61\n0\n");
    expect_done({"plan", "--strategies", "4x(1,16,1)", "-o", "plan.json"});
  }
  Outcome expect_done(const std::vector<std::string>& arguments) const {
    Outcome outcome = command_.run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  }
  void expect_error(const std::vector<std::string>& arguments, int code,
                    const std::string& part) const {
    const Outcome outcome = command_.run(arguments);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }
  std::string plan_text() const { return read_text_file(command_.folder() / "plan.json"); }
  Command command_;
};

TEST_F(FilesCommand, AnOutputNeverReplacesAnInputOrAnotherOutput) {
  const std::string before = plan_text();
  expect_error({"simulate", "--plan", "plan.json", "--trace", "lengths.txt", "-o", "./plan.json"},
               2, "also the file of --plan");
  expect_error({"simulate", "--plan", "plan.json", "--trace", "lengths.txt", "-o", "x.json",
                "--timeline", "x.json"},
               2, "also the file of --timeline");
  expect_error({"assign", "--plan", "plan.json", "--lengths", "lengths.txt", "-o", "lengths.txt"},
               2, "also the file of --lengths");
  expect_error({"compare", "--plan", "plan.json", "--trace", "lengths.txt", "-o", "plan.json"}, 2,
               "also the file of --plan");
  expect_error({"plan", "--trace", "lengths.txt", "-o", "lengths.txt"}, 2,
               "also the file of --trace");
  expect_error({"trace", "import", "lengths.txt", "-o", "lengths.txt"}, 2,
               "also the file of the corpus");
  EXPECT_EQ(plan_text(), before);
  EXPECT_FALSE(std::filesystem::exists(command_.folder() / "x.json"));
}

TEST_F(FilesCommand, TimelinesHaveAKnownEnding) {
  expect_error({"simulate", "--plan", "plan.json", "--trace", "lengths.txt", "--timeline", "t.foo"},
               2, "--timeline: t.foo");
  EXPECT_FALSE(std::filesystem::exists(command_.folder() / "t.foo"));
}

TEST_F(FilesCommand, AssignSaysWhatItLeftOut) {
  const Outcome outcome = expect_done({"assign", "--plan", "plan.json", "--lengths", "lengths.txt",
                                       "--context", "150", "--over-context", "drop"});
  EXPECT_NE(outcome.out.find("1 empty sequences left out; 2 over the context, of which 2 dropped, "
                             "500 tokens removed"),
            std::string::npos)
      << outcome.out;
}

TEST_F(FilesCommand, ACapIsNotBlamedOnMemory) {
  expect_error({"assign", "--plan", "plan.json", "--lengths", "lengths.txt", "--max-tokens", "200"},
               3, "--max-tokens 200: sequence 2 has 300 tokens, 100 more");
  expect_error({"simulate", "--plan", "plan.json", "--trace", "lengths.txt", "--policy",
                "static-pack", "--max-tokens", "3"},
               3, "--max-tokens 3");
}

TEST_F(FilesCommand, ABatchOverTheBudgetIsNoted) {
  const Outcome outcome = expect_done({"simulate", "--plan", "plan.json", "--trace", "lengths.txt",
                                       "--tokens-per-batch", "150", "--iterations", "4"});
  EXPECT_NE(outcome.out.find("2 of 4 batches hold one sequence that is longer than the budget"),
            std::string::npos)
      << outcome.out;
}

TEST_F(FilesCommand, FaultsOfAnEditedPlanNameItsFile) {
  Json plan = read_json_file(command_.folder() / "plan.json");
  plan["cluster"] = "a800-32";
  command_.folder().write("other.json", to_text(plan));
  expect_error({"assign", "--plan", "other.json", "--lengths", "lengths.txt"}, 2, "other.json: ");
  plan["cluster"] = "a800-64";
  plan["proposal_seconds"] = -1;
  command_.folder().write("other.json", to_text(plan));
  expect_error({"assign", "--plan", "other.json", "--lengths", "lengths.txt"}, 2,
               "proposal_seconds");
}

TEST_F(FilesCommand, AFieldGivenTwiceIsRefused) {
  const std::string text = plan_text();
  command_.folder().write("twice.json", "{\"context\": 8192," + text.substr(1));
  expect_error({"assign", "--plan", "twice.json", "--lengths", "lengths.txt"}, 2,
               "twice.json: field 'context' is given twice");
  command_.folder().write("cluster.json", R"({"nodes": 1, "devices_per_node": 8,
    "device": {"name": "a800", "memory_gib": 80, "memory_gib": 40}})");
  expect_error({"plan", "--cluster", "cluster.json", "--trace", "lengths.txt"}, 2,
               "cluster.json: field 'device.memory_gib' is given twice");
}

TEST_F(FilesCommand, SchemesOfAnEditedPlanAreHonouredOrTheirDisagreementIsSaid) {
  const auto run = [&](const Json& plan) {
    command_.folder().write("edited.json", to_text(plan));
    return command_.json(
        {"simulate", "--plan", "edited.json", "--trace", "lengths.txt", "--iterations", "2"});
  };
  const auto notes = [&](const Json& plan) { return run(plan).at("notes").dump(); };
  const Json plan = read_json_file(command_.folder() / "plan.json");
  EXPECT_EQ(notes(plan).find("edited.json"), std::string::npos);
  Json edited = plan;
  edited["schemes"][3]["max_tokens"] = 99999999;
  EXPECT_NE(notes(edited).find("schemes[3] (1,2,2): max_tokens is 99999999, the cost model gives"),
            std::string::npos)
      << notes(edited);
  edited = plan;
  edited["schemes"][5]["seconds_per_token"] = 1;
  EXPECT_NE(notes(edited).find("schemes[5] (1,2,6): its times are not those of profile"),
            std::string::npos)
      << notes(edited);
  edited = plan;
  edited["schemes"][0]["tp"] = 32;
  EXPECT_NE(notes(edited).find("schemes[0] (1,32,2): profile a800-llama-32b does not know it"),
            std::string::npos)
      << notes(edited);
}

TEST_F(FilesCommand, APlansCapHoldsForItsRuns) {
  expect_done({"plan", "--strategies", "4x(1,16,1)", "--context", "512", "--max-tokens", "512",
               "-o", "capped.json"});
  const Json capped =
      command_.json({"assign", "--plan", "capped.json", "--lengths", "lengths.txt"});
  EXPECT_NE(capped.at("notes").dump().find("made with --max-tokens 512"), std::string::npos);
  const std::vector<std::string> assign = {"assign",      "--plan",       "plan.json", "--lengths",
                                           "lengths.txt", "--max-tokens", "512"};
  EXPECT_EQ(command_.json(assign).at("makespan_ms"), capped.at("makespan_ms"));
  command_.folder().write("long.txt", "513\n");
  expect_error({"assign", "--plan", "capped.json", "--lengths", "long.txt", "--context", "1024"}, 3,
               "--max-tokens 512");
}

TEST_F(FilesCommand, UnusedDevicesAreNoted) {
  Json plan = read_json_file(command_.folder() / "plan.json");
  EXPECT_EQ(
      command_
          .json({"simulate", "--plan", "plan.json", "--trace", "lengths.txt", "--iterations", "2"})
          .at("unused_devices")
          .dump(),
      "[0]");
  plan["strategies"][0].erase(0);
  command_.folder().write("three.json", to_text(plan));
  const std::vector<std::string> simulate = {"simulate",    "--plan",       "three.json", "--trace",
                                             "lengths.txt", "--iterations", "2"};
  EXPECT_EQ(command_.json(simulate).at("unused_devices").dump(), "[16]");
  EXPECT_NE(expect_done(simulate).out.find("strategy 0, 3x(1,16,1), leaves 16 of 64"),
            std::string::npos);
  const std::vector<std::string> assign = {"assign", "--plan", "three.json", "--lengths",
                                           "lengths.txt"};
  EXPECT_EQ(command_.json(assign).at("unused_devices"), 16);
  EXPECT_NE(expect_done(assign).out.find("leaves 16 of 64 devices unused"), std::string::npos);
  const Json compared =
      command_.json({"compare", "--plan", "three.json", "--trace", "lengths.txt", "--iterations",
                     "2", "--policies", "hydraulis-static,hydraulis"});
  EXPECT_EQ(compared.at("policies")[0].at("unused_devices"), 0);
  EXPECT_EQ(compared.at("policies")[1].at("unused_devices"), 16);
}

TEST_F(FilesCommand, AFormatCanBeNamedWhereTheEndingDoesNotSay) {
  command_.folder().write("batch", "100\n200\n");
  command_.folder().write("counts", "100,3\n250,2\n");
  expect_error({"assign", "--plan", "plan.json", "--lengths", "batch"}, 2, "lines, histogram");
  EXPECT_EQ(
      command_.json({"assign", "--plan", "plan.json", "--lengths", "batch", "--format", "lines"})
          .at("tokens"),
      300);
  EXPECT_EQ(command_.json({"trace", "show", "counts", "--format", "histogram"}).at("sequences"), 5);
  expect_error({"trace", "show", "batch", "--format", "histogram"}, 2, "batch: line 1");
  expect_error({"trace", "show", "batch", "--format", "h5"}, 2, "batch: not an HDF5 file");
  expect_error({"trace", "show", "none", "--format", "lines"}, 2, "none: no such file");
  expect_error({"trace", "show", "batch", "--format", "jsonl"}, 2, "--format");
  const Outcome simulated = expect_done({"simulate", "--plan", "plan.json", "--trace", "batch",
                                         "--trace-format", "lines", "--iterations", "2"});
  EXPECT_EQ(simulated.err, "");
  expect_error({"trace", "import", "batch", "-o", "t.h5"}, 2, "--format");
  expect_done({"trace", "import", "batch", "--format", "lines", "-o", "t.h5"});
  EXPECT_EQ(command_.json({"trace", "show", "t.h5"}).at("tokens"), 300);
  const Outcome odd = expect_done({"trace", "import", "batch", "--format", "lines", "-o", "store"});
  EXPECT_NE(odd.err.find("store: does not end in .h5"), std::string::npos) << odd.err;
  EXPECT_EQ(command_.json({"trace", "show", "store", "--format", "h5"}).at("tokens"), 300);
}

TEST_F(FilesCommand, AModelMayBeAFolder) {
  std::filesystem::create_directories(command_.folder() / "hf");
  const std::vector<std::string> plan = {"plan",      "--model",      "hf",
                                         "--cluster", "a800-8",       "--context",
                                         "2048",      "--strategies", "8x(1,1,1)"};
  expect_error(plan, 2, "model 'hf': a folder without a config.json");
  command_.folder().write("hf/config.json", R"({"model_type": "llama", "num_hidden_layers": 2,
    "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "vocab_size": 1000})");
  const Outcome planned = expect_done(plan);
  EXPECT_NE(planned.out.find("hf on a800-8; times: analytic"), std::string::npos) << planned.out;
}

// A model this small takes nanoseconds a token: its costs must not all read 0.00.
TEST_F(FilesCommand, SmallCostsShowTheirDigits) {
  command_.folder().write("config.json", R"({"model_type": "llama", "num_hidden_layers": 2,
    "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 1000})");
  const Outcome planned = expect_done({"plan", "--model", "config.json", "--cluster", "h100-8",
                                       "--context", "2048", "--strategies", "8x(1,1,1)"});
  std::istringstream lines(planned.out);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("(1,", 0) != 0) continue;
    std::istringstream cells(line);
    std::string scheme, devices, longest;
    double a = 0, b = 0, c = 0;
    cells >> scheme >> devices >> longest >> a >> b >> c;
    EXPECT_GT(a, 0) << line;
    EXPECT_GT(b, 0) << line;
  }
}

TEST_F(FilesCommand, WhatIsBehindTheNumbersIsOneLineUnlessAskedFor) {
  const std::vector<std::string> simulate = {"simulate",    "--plan",       "plan.json", "--trace",
                                             "lengths.txt", "--iterations", "2"};
  std::vector<std::string> verbose = simulate;
  verbose.emplace_back("--verbose");
  const std::string brief = expect_done(simulate).out;
  const std::string full = expect_done(verbose).out;
  const Json json = command_.json(simulate);
  for (const char* part :
       {"llama-32b on a800-64; times: measured profile a800-llama-32b",
        "without context parallelism or recomputation", "tensor-parallel communication inside",
        "network assumed: 200 GB/s a device in a node, 25 GB/s between nodes"}) {
    EXPECT_NE(brief.find(part), std::string::npos) << part << "\n" << brief;
    EXPECT_NE(json.at("notes").dump().find(part), std::string::npos) << part;
  }
  const std::string origin = "measured by the paper's authors";
  EXPECT_EQ(brief.find(origin), std::string::npos);
  EXPECT_NE(full.find(origin), std::string::npos) << full;
  EXPECT_NE(json.at("notes").dump().find(origin), std::string::npos);
  EXPECT_NE(expect_done({"compare", "--plan", "plan.json", "--trace", "lengths.txt", "--iterations",
                         "2", "--policies", "static-pack"})
                .out.find("exposed communication (depends on the network assumed): static-pack"),
            std::string::npos);
}

TEST_F(FilesCommand, DefaultsOfTheSystemAreSaid) {
  const auto out = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"simulate", "--trace", "lengths.txt", "--iterations",
                                          "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return expect_done(arguments).out;
  };
  EXPECT_NE(out({}).find("llama-32b (default) on a800-64 (default);"), std::string::npos);
  EXPECT_NE(out({"--model", "llama-7b"}).find("llama-7b on a800-64 (default);"), std::string::npos);
  EXPECT_NE(out({"--plan", "plan.json"}).find("llama-32b on a800-64;"), std::string::npos);
}

TEST_F(FilesCommand, APolicyForLongSequencesNeedsALength) {
  expect_error({"trace", "show", "lengths.txt", "--over-context", "truncate"}, 2, "--context");
}

}  // namespace
}  // namespace hydraulis
