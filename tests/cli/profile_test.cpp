// `hydraulis profile`, as a user runs it.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cli/train_job.h"

namespace hydraulis {
namespace {

const std::string kModel =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 96,
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "hidden_act": "silu",
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": false, "torch_dtype": "float32"})";

std::vector<std::string> measuring(const std::string& output, std::vector<std::string> more = {}) {
  std::vector<std::string> words{"--quick", "--model",     "m.json", "--max-tokens",
                                 "32",      "--max-bytes", "4K",     "--threads",
                                 "1",       "-o",          output};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<std::string> profile(std::vector<std::string> words) {
  words.insert(words.begin(), "profile");
  return words;
}

TEST(ProfileCommand, MeasuresShowsComparesAndGoesOn) {
  const Command command;
  command.folder().write("m.json", kModel);
  const Outcome measured = command.run(profile(measuring("p.h5")));
  ASSERT_EQ(measured.code, 0) << measured.err;
  EXPECT_NE(measured.out.find("gemm_forward 32→64"), std::string::npos) << measured.out;
  EXPECT_NE(measured.err.find("found 1 rank on 1 node"), std::string::npos) << measured.err;
  EXPECT_NE(measured.err.find("collectives are not measured"), std::string::npos) << measured.err;

  const Json shown = command.json({"profile", "show", "p.h5"});
  EXPECT_EQ(shown.at("name"), "p");
  EXPECT_EQ(shown.at("machine").at("ranks"), 1);
  EXPECT_FALSE(shown.at("kernels").empty());
  EXPECT_TRUE(shown.at("collectives").empty());
  const Outcome text = command.run({"profile", "show", "p.h5"});
  EXPECT_NE(text.out.find("o sample, · fit, • both"), std::string::npos);
  EXPECT_EQ(command.run({"profile", "show", "p.h5", "--plot", "swiglu of 48"}).code, 0);

  // Nothing is left to measure: the same numbers.
  const Json again = command.json(profile(measuring("p.h5", {"--resume"})));
  EXPECT_EQ(again.at("kernels"), shown.at("kernels"));
  EXPECT_EQ(command.json({"profile", "compare", "p.h5", "p.h5"}).at("ratio"), 1.0);
  expect_refused(command.run({"profile", "compare", "p.h5"}), 2, "expected at least 2");
  expect_refused(command.run(profile(measuring("p.h5", {"--resume", "--precision", "f64"}))), 2,
                 "were measured in f32");
}

TEST(ProfileCommand, RanksMeasureTogether) {
  const Command command;
  command.folder().write("m.json", kModel);
  TrainingJob job(command, 2, measuring("p.h5", {"--ranks", "2", "--json"}),
                  {HYDRAULIS_COMMAND, "profile"});
  const Outcome outcome = job.wait();
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json.at("machine").at("ranks"), 2);
  EXPECT_EQ(json.at("ranks").size(), 2u);
  std::vector<std::string> operations;
  for (const Json& row : json.at("collectives")) {
    EXPECT_TRUE(row.at("checked").get<bool>());
    operations.push_back(row.at("operation"));
  }
  for (const char* operation :
       {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "send"}) {
    EXPECT_NE(std::ranges::find(operations, operation), operations.end()) << operation;
  }
  // Shapes of two tensor-parallel ranks too: 4 of 4 heads and 2 of 4.
  const auto has_heads = [&](int heads) {
    return std::ranges::any_of(json.at("kernels"), [&](const Json& row) {
      return row.at("kernel") == "attention" && row.at("heads") == heads;
    });
  };
  EXPECT_TRUE(has_heads(4));
  EXPECT_TRUE(has_heads(2));
  const Json nodes = command.json({"profile", "compare", "p.h5"});
  EXPECT_EQ(nodes.at("rows").size(), 2u);
}

// One line whatever the number of ranks; nothing written, nothing measured.
TEST(ProfileCommand, RanksThatCannotMeasureSaySoOnce) {
  const Command command;
  command.folder().write("m.json", kModel);
  for (const auto& [more, part] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--ranks", "3"}, "this job has 2; start it with mpirun -n 3"},
           {{"-o", "none/p.h5"}, "none"},
           {{"--model", "none.json"}, "none.json"}}) {
    std::vector<std::string> words = measuring("p.h5");
    for (const char* option : {"-o", "--model"}) {
      const auto found = std::ranges::find(words, option);
      if (more[0] == option) words.erase(found, found + 2);
    }
    words.insert(words.end(), more.begin(), more.end());
    TrainingJob job(command, 2, words, {HYDRAULIS_COMMAND, "profile"});
    const Outcome outcome = job.wait();
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    const std::size_t at = outcome.err.find(part);
    ASSERT_NE(at, std::string::npos) << outcome.err;
    std::size_t errors = 0;
    for (std::size_t i = 0; (i = outcome.err.find("error: ", i)) != std::string::npos; ++i)
      ++errors;
    EXPECT_EQ(errors, 1u) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(command.folder() / "p.h5"));
  }
}

TEST(ProfileCommand, RefusesBadUsage) {
  const Command command;
  command.folder().write("m.json", kModel);
  expect_refused(command.run({"profile"}), 2, "--output");
  expect_refused(command.run({"profile", "-o", "p.h5", "--quik"}), 2, "did you mean --quick");
  expect_refused(command.run({"profile", "-o", "p.h5", "--max-bytes", "64Q"}), 2, "64Q");
  expect_refused(command.run({"profile", "-o", "p.h5", "--max-bytes", "12"}), 2, "from 1K to 1T");
  expect_refused(command.run({"profile", "-o", "p.h5", "--max-bytes", "99999999999999T"}), 2, "1T");
  expect_refused(command.run({"profile", "-o", "p.h5", "--precision", "bf16"}), 2, "bf16");
  expect_refused(command.run({"profile", "-o", "p.h5", "--tp", "0"}), 2, "'0'");
  expect_refused(command.run({"profile", "-o", "none/p.h5", "--model", "m.json"}), 2, "none");
  expect_refused(command.run({"profile", "-o", "p.h5", "--model", "none.json"}), 2, "none.json");
  expect_refused(command.run({"profile", "-o", "p.h5", "--model", "m.json", "--ranks", "2"}), 2,
                 "mpirun -n 2");
  expect_refused(command.run({"profile", "show", "none.h5"}), 2, "none.h5");
  expect_refused(command.run({"profile", "show", "m.json"}), 2, "m.json");
  expect_refused(command.run({"profile", "compare", "none.h5"}), 2, "none.h5");
  expect_refused(command.run({"profile", "import", "none.txt", "-o", "p.h5"}), 2, "none.txt");
  EXPECT_FALSE(std::filesystem::exists(command.folder() / "p.h5"));
}

std::string nccl_output(int ranks, const std::string& test, const std::string& rows) {
  std::string text =
      "# nThread 1 nGpus 1 minBytes 1 maxBytes 2 step: 2(factor) warmup iters: 5 iters: 20\n";
  for (int rank = 0; rank < ranks; ++rank) {
    text += "#  Rank " + std::to_string(rank) + " Group  0 Pid 7 on node" +
            std::to_string(rank / 8) + " device " + std::to_string(rank % 8) +
            " [0x07] NVIDIA A800\n";
  }
  return text + "# " + test +
         "\n#       size         count      type   redop    root     time   algbw   busbw #wrong   "
         "  "
         "time   algbw   busbw #wrong\n#        (B)    (elements)                               "
         "(us)  "
         "(GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n" +
         rows;
}

// Case B01: the worked numbers, through a file.
TEST(ProfileImport, BandwidthsAsNcclTestsCountsThem) {
  const Command command;
  command.folder().write(
      "reduce.txt",
      nccl_output(
          16, "all_reduce_perf",
          " 10737418240 2684354560 float sum -1 90330 118.87 222.88 0 90330 118.87 222.88 0\n"));
  command.folder().write(
      "gather.txt",
      nccl_output(2, "all_gather_perf",
                  " 1073741824 134217728 float none -1 27211 39.46 19.73 0 27211 39.46 19.73 0\n"));
  const Json json = command.json({"profile", "import", "reduce.txt", "gather.txt", "-o", "p.h5"});
  ASSERT_EQ(json.at("collectives").size(), 2u);
  const auto number = [&](int row, const char* key) {
    return json.at("collectives").at(row).at(key).get<double>();
  };
  EXPECT_NEAR(number(0, "algbw_gigabytes_per_second"), 118.87, 0.005);
  EXPECT_NEAR(number(0, "busbw_gigabytes_per_second"), 222.88, 0.005);
  EXPECT_NEAR(number(1, "algbw_gigabytes_per_second"), 39.46, 0.005);
  EXPECT_NEAR(number(1, "busbw_gigabytes_per_second"), 19.73, 0.005);
  EXPECT_EQ(json.at("collectives").at(0).at("nodes"), 2);
  EXPECT_EQ(json.at("machine").at("device"), "NVIDIA A800");
  EXPECT_NE(json.at("notes").dump().find("sizes in total"), std::string::npos);
  const Outcome text = command.run({"profile", "show", "p.h5"});
  EXPECT_NE(text.out.find("bytes: the whole"), std::string::npos);
}

// Case B04: good sizes are in the file, and the command fails.
TEST(ProfileImport, FailedDataChecksAreLeftOutAndToldByTheExitCode) {
  const Command command;
  command.folder().write(
      "g.txt",
      nccl_output(
          8, "all_gather_perf",
          " 2147483648 67108864 float none -1 14561 147.48 129.05 0 14580 147.3 128.88 0\n"
          " 4294967296 134217728 float none -1 29122 147.48 129.05 2 29169 147.2 128.84 2\n") +
          "# Out of bounds values : 2 FAILED\n");
  const Outcome outcome = command.run({"profile", "import", "g.txt", "-o", "p.h5"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("failed their data check"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.out.find("4294967296 bytes (line 14)"), std::string::npos) << outcome.out;
  const Json shown = command.json({"profile", "show", "p.h5"});
  ASSERT_EQ(shown.at("collectives").size(), 1u);
  EXPECT_EQ(shown.at("collectives").at(0).at("bytes"), 2147483648);
  EXPECT_EQ(shown.at("excluded").size(), 1u);
}

// Case B03.
TEST(ProfileImport, OneRankJobsAreRefused) {
  const Command command;
  command.folder().write(
      "one.txt",
      nccl_output(1, "all_reduce_perf",
                  " 134217728 33554432 float sum -1 190.0 706.40 0.00 0 0.51 263172 0 0\n"));
  expect_refused(command.run({"profile", "import", "one.txt", "-o", "p.h5"}), 2, "MPI=1");
  expect_refused(command.run({"profile", "import", "one.txt", "--ranks", "16", "-o", "p.h5"}), 2,
                 "expected 16");
  EXPECT_FALSE(std::filesystem::exists(command.folder() / "p.h5"));
}

TEST(ProfileImport, ReplacesCollectivesOfAMeasuredProfile) {
  const Command command;
  command.folder().write("m.json", kModel);
  ASSERT_EQ(command.run(profile(measuring("p.h5"))).code, 0);
  command.folder().write(
      "r.txt",
      nccl_output(8, "all_reduce_perf",
                  " 1024000 256000 float sum -1 64.00 16.00 28.00 0 64.00 16.00 28.00 0\n"));
  const Json before = command.json({"profile", "show", "p.h5"});
  for (int times = 0; times < 2; ++times) {
    const Json json = command.json({"profile", "import", "r.txt", "--into", "p.h5"});
    EXPECT_EQ(json.at("collectives").size(), 1u);
    EXPECT_EQ(json.at("kernels"), before.at("kernels"));
    EXPECT_EQ(json.at("machine").at("device"), "cpu");
  }
  expect_refused(command.run({"profile", "import", "r.txt"}), 2, "--into");
}

// A file cut off anywhere is refused in one line.
TEST(ProfileShow, TruncatedFilesAreRefused) {
  const Command command;
  command.folder().write(
      "r.txt",
      nccl_output(8, "all_reduce_perf",
                  " 1024000 256000 float sum -1 64.00 16.00 28.00 0 64.00 16.00 28.00 0\n"));
  ASSERT_EQ(command.run({"profile", "import", "r.txt", "-o", "p.h5"}).code, 0);
  const std::string whole = read_text_file(command.folder() / "p.h5");
  for (const double share : {0.0, 0.01, 0.3, 0.7, 0.99}) {
    const auto size = static_cast<std::size_t>(share * static_cast<double>(whole.size()));
    command.folder().write("cut.h5", whole.substr(0, size));
    expect_refused(command.run({"profile", "show", "cut.h5"}), 2, "cut.h5");
  }
}

}  // namespace
}  // namespace hydraulis
