#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/json.h"
#include "tests/base/temporary_folder.h"

namespace hydraulis {

/// What a run of the built command left behind.
struct Outcome {
  int code = -1;  ///< exit code, or -signal
  std::string out;
  std::string err;
  long peak_kilobytes = 0;  ///< of resident memory
};

/// A folder in which the built `hydraulis` is run as a user runs it.
class Command {
 public:
  const TemporaryFolder& folder() const { return folder_; }

  /// Runs `hydraulis arguments...`; `out_file` takes the place of standard output, and "" closes
  /// it.
  Outcome run(const std::vector<std::string>& arguments,
              const std::string& out_file = "stdout.txt") const {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::chdir(folder_.path().c_str()) != 0) ::_exit(126);
      ::close(STDOUT_FILENO);
      if (!out_file.empty()) open_as(STDOUT_FILENO, out_file);
      open_as(STDERR_FILENO, "stderr.txt");
      std::vector<char*> argv{const_cast<char*>(HYDRAULIS_COMMAND)};
      for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
      argv.push_back(nullptr);
      ::execv(HYDRAULIS_COMMAND, argv.data());
      ::_exit(127);
    }
    int status = 0;
    rusage usage{};
    ::wait4(child, &status, 0, &usage);
    Outcome outcome;
    outcome.peak_kilobytes = usage.ru_maxrss;
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    if (out_file == "stdout.txt") outcome.out = take("stdout.txt");
    outcome.err = take("stderr.txt");
    return outcome;
  }

  /// The JSON document of a run that must succeed.
  Json json(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? Json::parse(outcome.out) : Json();
  }

 private:
  static void open_as(int descriptor, const std::string& file) {
    const int opened = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (opened != descriptor) {
      ::dup2(opened, descriptor);
      ::close(opened);
    }
  }
  /// Reads and removes, so that a test can look at what else was written.
  std::string take(const std::string& name) const {
    std::string text = read_text_file(folder_ / name);
    std::filesystem::remove(folder_ / name);
    return text;
  }

  TemporaryFolder folder_;
};

/// Refused with `code`, nothing on standard output, one line that has `part` on standard error.
inline void expect_refused(const Outcome& outcome, int code, const std::string& part) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.rfind("hydraulis: error: ", 0), 0u) << outcome.err;
  EXPECT_NE(outcome.err.find(part), std::string::npos)
      << "expected '" << part << "' in " << outcome.err;
  EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
}

/// A small batch for 64 devices, written as lengths.txt: long and short sequences.
inline void write_lengths(const TemporaryFolder& folder) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += std::to_string(64 + (i * 7919) % 3000) + "\n";
  for (int i = 0; i < 12; ++i) text += std::to_string(8000 + (i * 1543) % 24000) + "\n";
  folder.write("lengths.txt", text);
}

/// The options of a plan given by hand, for 64 A800.
inline std::vector<std::string> hand_plan(const std::string& output = "plan.json") {
  return {"plan",
          "--model",
          "llama-32b",
          "--cluster",
          "a800-64",
          "--context",
          "32768",
          "--tokens-per-batch",
          "200000",
          "--strategies",
          "4x(1,16,1); (1,16,1)+6x(1,8,1)",
          "--optimizer-layout",
          "4,16,1",
          "-o",
          output};
}

}  // namespace hydraulis
