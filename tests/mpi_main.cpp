// The main program of tests that run under mpirun (*_mpi_test.cpp).
#include <gtest/gtest.h>

#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include "tests/mpi_process.h"

namespace hydraulis::test {

namespace {

std::optional<CpuProcess> process;

/// Rank 0 prints as usual, the others only what fails. A rank that fails may have left the others
/// waiting for it, so it ends them.
class EndOnFailure : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo& info) override {
    try {
      process->world->barrier();
    } catch (const std::exception& e) {
      end(std::string(info.test_suite_name()) + "." + info.name() + ": " + e.what());
    }
  }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed() || process->world->rank() == 0) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", process->world->rank(),
                 result.file_name() == nullptr ? "?" : result.file_name(), result.line_number(),
                 result.message());
  }
  void OnTestEnd(const testing::TestInfo& info) override {
    if (info.result()->Failed()) {
      end(std::string(info.test_suite_name()) + "." + info.name() + " failed");
    }
  }

 private:
  static void end(const std::string& why) {
    std::fprintf(stderr, "rank %d: %s\n", process->world->rank(), why.c_str());
    process->world->abort(1);
  }
};

}  // namespace

CpuProcess& mpi_process() { return *process; }

}  // namespace hydraulis::test

int main(int argc, char** argv) {
  using hydraulis::test::process;
  // The process first: tests with parameters are made for the number of ranks there is. One thread
  // a rank: small kernels on more wait for one another where the machine has other work.
  process = hydraulis::start_cpu_process(1);
  testing::InitGoogleTest(&argc, argv);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (process->world->rank() != 0) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new hydraulis::test::EndOnFailure);
  int result = RUN_ALL_TESTS();
  if (testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
    std::fprintf(stderr, "no test for %d ranks\n", process->world->size());
    result = 1;
  }
  process.reset();
  return result;
}
