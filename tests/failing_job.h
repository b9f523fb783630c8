#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "tests/processes.h"

namespace hydraulis {

/// How a job that was to fail ended.
struct Ended {
  int exit_code = 0;  ///< minus the signal's number if it ended by one
  double seconds = 0;
  std::string output;
};

/// Runs `program` (with its arguments) on so many ranks and checks that no process of it is left.
inline Ended run_failing_job(int ranks, const std::string& program) {
  const std::string mark = "failing_job_of_" + std::to_string(getpid());
  const std::string command = "exec " HYDRAULIS_SOURCE_DIR "/tests/mpirun.sh " +
                              std::to_string(ranks) + " " + program + " " + mark + " 2>&1";
  const auto start = std::chrono::steady_clock::now();
  Ended ended;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return ended;
  char block[4096];
  for (std::size_t n = 0; (n = fread(block, 1, sizeof(block), pipe)) > 0;) {
    ended.output.append(block, n);
  }
  const int status = pclose(pipe);
  ended.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  ended.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  // mpirun may return a moment before the last process it has killed is gone.
  for (int i = 0; i < 100 && processes_with(mark) > 0; ++i) usleep(100'000);
  EXPECT_EQ(processes_with(mark), 0) << program;
  return ended;
}

}  // namespace hydraulis
