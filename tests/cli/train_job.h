#pragma once

#include <signal.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/cli/command.h"
#include "tests/processes.h"

namespace hydraulis {

/// A training job under mpirun in a folder of its own, as a user starts it.
class TrainingJob {
 public:
  /// `program`: what each rank runs in front of the arguments.
  TrainingJob(const Command& command, int ranks, const std::vector<std::string>& arguments,
              const std::vector<std::string>& program = {HYDRAULIS_COMMAND, "train"})
      : folder_(command.folder().path()), start_(Clock::now()) {
    std::vector<std::string> words{HYDRAULIS_SOURCE_DIR "/tests/mpirun.sh", std::to_string(ranks)};
    words.insert(words.end(), program.begin(), program.end());
    words.insert(words.end(), arguments.begin(), arguments.end());
    mpirun_ = ::fork();
    if (mpirun_ == 0) {
      if (::chdir(folder_.c_str()) != 0) ::_exit(126);
      to_file(STDOUT_FILENO, "job.out");
      to_file(STDERR_FILENO, "job.err");
      std::vector<char*> argv;
      for (std::string& word : words) argv.push_back(word.data());
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }
  TrainingJob(const TrainingJob&) = delete;
  TrainingJob& operator=(const TrainingJob&) = delete;
  ~TrainingJob() {
    if (!ended_) wait(0);
  }

  pid_t mpirun() const { return mpirun_; }

  /// Processes of the ranks, by rank.
  std::vector<pid_t> ranks() const {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::ifstream file(entry.path() / "stat");
      std::string line;
      if (!std::getline(file, line)) continue;
      std::istringstream rest(line.substr(line.rfind(')') + 1));
      std::string state;
      pid_t parent = 0;
      rest >> state >> parent;
      if (parent == mpirun_) found.push_back(std::stoi(entry.path().filename().string()));
    }
    std::ranges::sort(found);
    return found;
  }

  /// Waits until `condition` holds or the job has ended or half a minute is over.
  template <typename Condition>
  bool until(const Condition& condition) const {
    for (int i = 0; i < 15'000; ++i) {
      if (condition()) return true;
      siginfo_t info = {};
      ::waitid(P_PID, static_cast<id_t>(mpirun_), &info, WEXITED | WNOHANG | WNOWAIT);
      if (info.si_pid == mpirun_) return condition();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }

  /// What the job left behind; it is killed after `limit_seconds`, and then the code is -SIGKILL.
  Outcome wait(double limit_seconds = 100) {
    int status = 0;
    while (::waitpid(mpirun_, &status, WNOHANG) == 0) {
      if (seconds() > limit_seconds) {
        for (const pid_t rank : ranks()) ::kill(rank, SIGKILL);
        ::kill(mpirun_, SIGKILL);
        ::waitpid(mpirun_, &status, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ended_ = true;
    Outcome outcome;
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    outcome.out = read_text_file(folder_ / "job.out");
    outcome.err = read_text_file(folder_ / "job.err");
    return outcome;
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  static void to_file(int descriptor, const char* name) {
    const int opened = ::open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(opened, descriptor);
    ::close(opened);
  }

  std::filesystem::path folder_;
  std::chrono::steady_clock::time_point start_;
  pid_t mpirun_ = -1;
  bool ended_ = false;
};

/// Seconds that mpirun gives ranks to end before it kills them, while this lives.
class KillAfter {
 public:
  explicit KillAfter(const char* seconds) { ::setenv(kVariable, seconds, 1); }
  KillAfter(const KillAfter&) = delete;
  KillAfter& operator=(const KillAfter&) = delete;
  ~KillAfter() { ::unsetenv(kVariable); }

 private:
  static constexpr const char* kVariable = "OMPI_MCA_odls_base_sigkill_timeout";
};

/// A tiny model, texts and plans for several numbers of ranks, ready to be trained.
class TrainingFolder : public Command {
 public:
  TrainingFolder() {
    folder().write("config.json", config().dump());
    write_texts("texts.jsonl", 60);
  }

  static Json config() {
    return {{"architectures", {"LlamaForCausalLM"}},
            {"model_type", "llama"},
            {"vocab_size", 270},
            {"hidden_size", 32},
            {"intermediate_size", 48},
            {"num_hidden_layers", 2},
            {"num_attention_heads", 4},
            {"num_key_value_heads", 2},
            {"hidden_act", "silu"},
            {"max_position_embeddings", 512},
            {"initializer_range", 0.02},
            {"rms_norm_eps", 1e-5},
            {"rope_theta", 10000.0},
            {"tie_word_embeddings", true},
            {"torch_dtype", "float32"}};
  }

  /// Texts of 3 to 63 bytes that repeat a few words, so that there is something to learn.
  void write_texts(const std::string& name, int documents) const {
    std::string text;
    for (int i = 0; i < documents; ++i) {
      std::string words;
      for (int j = 0; j < 1 + (i * 37) % 21; ++j) words += (i + j) % 3 == 0 ? "ab " : "cde ";
      text += Json({{"text", words.substr(0, 63)}}).dump() + "\n";
    }
    folder().write(name, text);
  }

  /// Writes plan-RANKS.json.
  void plan(int ranks, const std::string& strategies) const {
    const Json cluster = {
        {"name", "cores"},
        {"nodes", 1},
        {"devices_per_node", ranks},
        {"device",
         {{"name", "core"},
          {"memory_gib", 1},
          {"peak_bf16_teraflops", 0.1},
          {"memory_bandwidth_gigabytes_per_second", 10},
          {"reserved_gib", 0.1}}},
        {"intra_node", {{"bandwidth_gigabytes_per_second", 4}, {"latency_microseconds", 5}}}};
    const std::string cores = "cluster-" + std::to_string(ranks) + ".json";
    folder().write(cores, cluster.dump());
    const Outcome planned = run({"plan", "--model", "config.json", "--cluster", cores, "--context",
                                 "64", "--tokens-per-batch", "256", "--strategies", strategies,
                                 "-o", "plan-" + std::to_string(ranks) + ".json"});
    ASSERT_EQ(planned.code, 0) << planned.err;
  }

  /// A run file: ten steps on plan-2.json into out, with `changes` as a JSON merge patch.
  void run_file(const std::string& name, const Json& changes) const {
    Json json = {{"plan", "plan-2.json"},
                 {"output", "out"},
                 {"steps", 10},
                 {"seed", 7},
                 {"data",
                  {{"sets", Json::array({{{"path", "texts.jsonl"}, {"tokenizer", "bytes"}}})},
                   {"over_context", "truncate"}}},
                 {"optimizer", {{"learning_rate", 5e-3}}},
                 {"timeout_seconds", 20}};
    if (!changes.is_null()) json.merge_patch(changes);
    folder().write(name, json.dump());
  }

  Outcome train(int ranks, const std::vector<std::string>& arguments) const {
    return TrainingJob(*this, ranks, arguments).wait();
  }
  /// A run that must succeed.
  Outcome trained(int ranks, const std::vector<std::string>& arguments) const {
    Outcome outcome = train(ranks, arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  }

  /// Rows of a log of the run, without its header, split at the first commas into `fields`.
  std::vector<std::vector<std::string>> rows(const std::string& file, std::size_t fields) const {
    std::vector<std::vector<std::string>> result;
    std::ifstream in(folder() / file);
    std::string line;
    std::getline(in, line);
    while (std::getline(in, line)) {
      std::vector<std::string>& row = result.emplace_back();
      std::istringstream cells(line);
      std::string cell;
      while (row.size() < fields && std::getline(cells, cell, ',')) row.push_back(cell);
    }
    return result;
  }
  /// Step, loss, gradient norm and learning rate of every step.
  std::vector<std::vector<std::string>> losses(const std::string& output) const {
    return rows(output + "/log.csv", 4);
  }
  std::string text(const std::string& file) const { return read_text_file(folder() / file); }
};

/// How often `part` stands in `text`.
inline int occurrences(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) {
    ++count;
  }
  return count;
}

/// The job ended with `code` and one error line, which has `part`.
inline void expect_one_error(const Outcome& outcome, int code, const std::string& part) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(occurrences(outcome.err, "hydraulis: error: "), 1) << outcome.err;
  EXPECT_NE(outcome.err.find(part), std::string::npos)
      << "expected '" << part << "' in " << outcome.err;
  EXPECT_EQ(outcome.err.find("MPI_ABORT"), std::string::npos) << outcome.err;
}

}  // namespace hydraulis
