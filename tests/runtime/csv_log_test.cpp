#include "runtime/csv_log.h"

#include <gtest/gtest.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "tests/base/temporary_folder.h"

namespace hydraulis {
namespace {

class Log : public testing::Test {
 protected:
  void write(std::int64_t resumed, std::int64_t first, std::int64_t last) {
    CsvLog log(path, {"loss", "strategy"}, resumed);
    for (std::int64_t step = first; step <= last; ++step) {
      log.write(step, {std::to_string(step * 10), "(1,2,1)+\"x\"\n"});
    }
  }
  static std::string row(std::int64_t step) {
    return std::to_string(step) + "," + std::to_string(step * 10) + ",\"(1,2,1)+\"\"x\"\"\n\"\n";
  }
  TemporaryFolder folder;
  std::filesystem::path path = folder / "log.csv";
  const std::string header = "step,loss,strategy\n";
};

TEST_F(Log, HasARowAStep) {
  write(0, 1, 2);
  EXPECT_EQ(read_text_file(path), header + row(1) + row(2));
  write(0, 1, 1);  // a new run
  EXPECT_EQ(read_text_file(path), header + row(1));
}

TEST_F(Log, ResumedHoldsEveryStepOnce) {
  write(0, 1, 12);
  write(9, 10, 11);
  std::string expected = header;
  for (int step = 1; step <= 11; ++step) expected += row(step);
  EXPECT_EQ(read_text_file(path), expected);
}

TEST_F(Log, ARowCutOffByACrashIsRemoved) {
  for (std::size_t cut = 0; cut <= row(3).size(); ++cut) {
    folder.write("log.csv", header + row(1) + row(2) + row(3).substr(0, cut));
    write(2, 3, 3);
    ASSERT_EQ(read_text_file(path), header + row(1) + row(2) + row(3)) << cut;
  }
}

TEST_F(Log, RefusesALogWithOtherColumns) {
  folder.write("log.csv", "step,loss\n1,2\n");
  EXPECT_THROW(write(1, 2, 2), InputError);
  folder.write("log.csv", "");
  EXPECT_THROW(write(1, 2, 2), InputError);
  path = folder / "none" / "log.csv";
  EXPECT_THROW(write(0, 1, 1), InputError);
}

}  // namespace
}  // namespace hydraulis
