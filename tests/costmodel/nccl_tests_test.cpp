#include "costmodel/nccl_tests.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/costmodel/expect_error.h"

namespace hydraulis {
namespace {

/// The "Using devices" part of `ranks` ranks on `nodes` nodes.
std::string devices(int ranks, int nodes) {
  std::string text = "# Using devices\n";
  for (int rank = 0; rank < ranks; ++rank) {
    text += "#  Rank " + std::to_string(rank) + " Group  0 Pid  " + std::to_string(900 + rank) +
            " on  node" + std::to_string(rank / (ranks / nodes)) + " device  " +
            std::to_string(rank % (ranks / nodes)) + " [0000:18:00] NVIDIA H200\n";
  }
  return text + "#\n";
}

std::string head(const std::string& test, int ranks, int nodes) {
  return "# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809\n"
         "# Collective test starting: " +
         test +
         "\n# nThread 1 nGpus 1 minBytes 1024 maxBytes 1024 step: 2(factor) warmup iters: 1 iters: "
         "20"
         " agg iters: 1 validation: 1 graph: 0 unalign: 0\n" +
         devices(ranks, nodes);
}

const std::string kColumns =
    "#                                       out-of-place                       in-place\n"
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong     "
    "time "
    "  algbw   busbw  #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             "
    "(us) "
    " (GB/s)  (GB/s)\n";

NcclTestsResult read(const std::string& text, const NcclTestsOptions& options = {}) {
  return parse_nccl_tests(text, "out.txt", options);
}

void refused(const std::string& text, const std::vector<std::string>& parts,
             const NcclTestsOptions& options = {}) {
  expect_error<InputError>([&] { read(text, options); }, parts);
}

// Case B01: the factor of each test; values of nccl-tests' own documentation and issue threads.
TEST(NcclTests, BusFactors) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 16), 1.875);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 2), 1);
  for (const Collective gather :
       {Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all}) {
    EXPECT_DOUBLE_EQ(bus_factor(gather, 8), 0.875);
    EXPECT_DOUBLE_EQ(bus_factor(gather, 2), 0.5);
  }
  EXPECT_DOUBLE_EQ(bus_factor(Collective::send, 2), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::broadcast, 8), 1);
  EXPECT_NEAR(10737418240 / 90330e-6 * 1e-9, 118.87, 0.005);
  EXPECT_NEAR(10737418240 / 90330e-6 * 1e-9 * bus_factor(Collective::all_reduce, 16), 222.88,
              0.005);
  EXPECT_NEAR(1073741824 / 27211e-6 * 1e-9 * bus_factor(Collective::all_gather, 2), 19.73, 0.005);
}

TEST(NcclTests, ReadsNewColumns) {
  const NcclTestsResult result =
      read(head("all_reduce_perf", 16, 2) + kColumns +
           "        1024           256     float     sum      -1    32.34    0.03    0.06       0  "
           "  31.9 "
           "   0.03    0.06       0\n"
           " 10737418240    2684354560     float     sum      -1    90330  118.87  222.88       0  "
           "  90100 "
           " 119.17  223.45       0\n"
           "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 111.5\n");
  ASSERT_EQ(result.samples.size(), 2u);
  const CollectiveSample& large = result.samples[1];
  EXPECT_EQ(large.operation, Collective::all_reduce);
  EXPECT_EQ(large.ranks, 16);
  EXPECT_EQ(large.nodes, 2);
  EXPECT_EQ(large.bytes, 10737418240);
  EXPECT_DOUBLE_EQ(large.time.median_seconds, 0.09033);
  EXPECT_EQ(large.time.repeats, 20);
  EXPECT_TRUE(large.checked);
  EXPECT_EQ(result.device, "NVIDIA H200");
  EXPECT_EQ(result.version, "nccl-tests 2.19.6, NCCL 22809");
  EXPECT_EQ(result.host, "node0");
  EXPECT_FALSE(result.data_check_failed);
}

// 2020's columns: no redop or root, "error", and an algbw that held the factor (nccl-tests#45), as
// in the row of nccl-tests#37 with its failed check (case B04).
TEST(NcclTests, ReadsOldColumnsAndLeavesOutWhatFailedItsCheck) {
  const NcclTestsResult result = read(
      "# nThread 1 nGpus 8 minBytes 1 maxBytes 4294967296 step: 2(factor) warmup iters: 5 iters: "
      "100 "
      "validation: 1\n" +
      devices(8, 1) +
      "# all_gather_perf\n"
      "#                                             out-of-place                       in-place\n"
      "#       size         count    type     time   algbw   busbw  error     time   algbw   busbw "
      " "
      "error\n"
      "#        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  "
      "(GB/s)\n"
      "  2147483648      67108864   float    14561  129.05  129.05  0e+00    14580  128.88  128.88 "
      " "
      "0e+00\n"
      "  4294967296     134217728   float    29122  129.05  129.05  1e+00    29169  128.84  128.84 "
      " "
      "1e+00\n"
      " Out of bounds values : 2 FAILED\n Avg bus bandwidth    : 128.942\n");
  ASSERT_EQ(result.samples.size(), 1u);
  EXPECT_EQ(result.samples[0].bytes, 2147483648);
  EXPECT_TRUE(result.data_check_failed);
  ASSERT_EQ(result.excluded.size(), 1u);
  EXPECT_NE(result.excluded[0].what.find("4294967296"), std::string::npos);
  EXPECT_NE(result.excluded[0].reason.find("check"), std::string::npos);
  EXPECT_NE(result.notes.at(0).find("(n−1)/n"), std::string::npos);
}

// NCCL 1's tests: "bytes" and "N", times in milliseconds.
TEST(NcclTests, ReadsMillisecondsOfTheOldestColumns) {
  NcclTestsOptions options;
  options.operation = Collective::all_reduce;
  options.ranks = 4;
  const NcclTestsResult result = read(
      "#                                                 out-of-place                    in-place\n"
      "#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  "
      "busbw      res\n"
      "    10000000      10000000    char     sum    1.628   6.14   9.21    0e+00    1.932   5.18  "
      " "
      "7.77    0e+00\n",
      options);
  ASSERT_EQ(result.samples.size(), 1u);
  EXPECT_DOUBLE_EQ(result.samples[0].time.median_seconds, 1.628e-3);
}

TEST(NcclTests, ReadsStatisticsTimestampsAndNoHeader) {
  const std::string half = "  32.00   32.00   48.00       0  ";
  const std::string statistics = " 31.0 33.0 32.9 1.2 ";
  const std::string row = " 1024000 256000 float sum -1 " + half + half;
  const std::string wide = " 1024000 256000 float sum -1 " + half + statistics + half + statistics;
  NcclTestsOptions options;
  options.operation = Collective::all_reduce;
  for (const std::string& text :
       {row, wide, row + " 2026-01-02T03:04:05", wide + "2026-01-02 03:04:05"}) {
    const NcclTestsResult result = read(text + "\n", options);
    ASSERT_EQ(result.samples.size(), 1u) << text;
    EXPECT_EQ(result.samples[0].ranks, 4) << text;  // 48/32 = 2·3/4
    EXPECT_DOUBLE_EQ(result.samples[0].time.median_seconds, 32e-6) << text;
  }
}

TEST(NcclTests, StripsLauncherPrefixesAndPassesOverChatter) {
  const std::string plain = head("broadcast_perf", 8, 1) + kColumns +
                            "     1024000        256000     float    none       0    32.00   32.00 "
                            "  32.00       0    32.00  "
                            " 32.00   32.00     N/A\n";
  for (const std::string prefix : {"[1,0]<stdout>:", "[1,0]<stdout> ", "0: ", "00:", "node-1: ",
                                   "[0] ", "  ", "worker.3: [1,0]<stdout>: "}) {
    std::string text = "node1:71:99 [0] NCCL INFO Bootstrap : Using eth0\n71 99 warnings\n";
    for (std::size_t begin = 0; begin < plain.size();) {
      const std::size_t end = plain.find('\n', begin);
      text += prefix + plain.substr(begin, end + 1 - begin);
      begin = end + 1;
    }
    const NcclTestsResult result = read(text);
    ASSERT_EQ(result.samples.size(), 1u) << prefix;
    EXPECT_EQ(result.samples[0].ranks, 8) << prefix;
    EXPECT_EQ(result.samples[0].operation, Collective::broadcast) << prefix;
  }
}

// A size of one rank shows in the bandwidth; samples hold totals.
TEST(NcclTests, SizesOfOneRankBecomeTotals) {
  const NcclTestsResult result =
      read(head("all_gather_perf", 4, 1) + kColumns +
           " 1000000 250000 float none -1 100.0 40.00 30.00 0 100.0 40.00 30.00 0\n");
  ASSERT_EQ(result.samples.size(), 1u);
  EXPECT_EQ(result.samples[0].bytes, 4000000);
  EXPECT_NE(result.notes.at(0).find("one rank"), std::string::npos);
}

TEST(NcclTests, SeveralRunsInOneFile) {
  const std::string rows = " 1024000 256000 float sum -1 64.00 16.00 28.00 0 64.00 16.00 28.00 0\n";
  const std::string gathers =
      " 1024000 256000 float none -1 32.00 32.00 28.00 0 32.00 32.00 28.00 0\n";
  const NcclTestsResult result =
      read(head("all_reduce_perf", 8, 1) + kColumns + rows + rows +
           "# Out of bounds values : 0 OK\n" + head("reduce_scatter_perf", 8, 2) + kColumns +
           gathers + head("gather_perf", 8, 1) + kColumns + gathers);
  ASSERT_EQ(result.samples.size(), 2u);
  EXPECT_EQ(result.samples[0].time.repeats, 40);
  EXPECT_EQ(result.samples[1].operation, Collective::reduce_scatter);
  EXPECT_EQ(result.samples[1].nodes, 2);
  EXPECT_NE(result.notes.at(0).find("gather_perf"), std::string::npos);
}

// Case B03: sixteen jobs of one rank instead of one of sixteen (nccl-tests#294).
TEST(NcclTests, OneRankRunsAreRefused) {
  std::string text;
  for (int job = 0; job < 16; ++job) text += "# nThread 1 nGpus 1 minBytes 1 maxBytes 2\n";
  for (int job = 0; job < 16; ++job) {
    text += "#  Rank  0 Group  0 Pid " + std::to_string(job) + " on n1 device 0 [0x07] A100\n";
  }
  text += "# all_reduce_perf\n" + kColumns;
  for (int job = 0; job < 16; ++job) {
    text += " 134217728 33554432 float sum -1 190.0 706.40 0.00 0 0.51 263172.02 0.00 0\n";
  }
  refused(text, {"out.txt", "16 runs of one rank", "MPI=1"});
  NcclTestsOptions options;
  options.ranks = 16;
  refused(text, {"1 rank took part", "expected 16", "MPI=1"}, options);
}

TEST(NcclTests, ImpossiblePointsAreLeftOutAndNamed) {
  const NcclTestsResult result =
      read(head("all_reduce_perf", 8, 1) + kColumns +
           " 134217728 33554432 float sum -1 0.51 263172.02 460551.04 0 0.5 1 1 0\n"
           " 134217728 33554432 float sum -1 5100 26.32 46.06 0 5100 26.32 46.06 0\n");
  ASSERT_EQ(result.samples.size(), 1u);
  ASSERT_EQ(result.excluded.size(), 1u);
  EXPECT_NE(result.excluded[0].reason.find("ceiling"), std::string::npos);
  EXPECT_FALSE(result.data_check_failed);
}

TEST(NcclTests, RefusesWhatDoesNotHangTogether) {
  const std::string row = " 1024000 256000 float sum -1 64.00 16.00 28.00 0 64.00 16.00 28.00 0\n";
  const std::string start = head("all_reduce_perf", 8, 1) + kColumns;
  const std::string where = "line 17";
  refused(start + row + " 1024000 256000 float sum -1 64.00 16.00",
          {"out.txt", "line 18", "cut off"});
  refused(start + " 1024000 256000 float sum -1 64.00 x 28.00 0 64.00 16.00 28.00 0\n",
          {where, "'algbw'", "'x'"});
  refused(start + " 1024000 256000 float sum -1 nan 16 28.00 0 64.00 16.00 28.00 0\n",
          {where, "'time'"});
  refused(start + " 1024000 256000 float sum -1 64.00 20.00 35.00 0 64.00 16.00 28.00 0\n",
          {where, "16.00 GB/s", "algbw is 20"});
  refused(start + " 1024000 256000 float sum -1 64.00 16.00 30.00 0 64.00 16.00 28.00 0\n",
          {where, "busbw", "1.7500", "8 ranks"});
  refused("", {"out.txt", "no measurement"});
  refused("hello\n# world\n", {"no measurement"});
  refused(row, {"line 1", "--collective"});
  NcclTestsOptions options;
  options.operation = Collective::send;
  refused(" 1024 256 float none -1 64.00 0.02 0.02 0 64.00 0.02 0.02 0\n", {"--ranks"}, options);
  options.ranks = 4;
  refused(start + row, {"8 ranks took part, expected 4"}, options);
}

// Whatever a damaged file holds: an error or a result, never a crash.
TEST(NcclTests, DamagedFiles) {
  const std::string whole =
      head("all_reduce_perf", 8, 2) + kColumns +
      " 1024000 256000 float sum -1 64.00 16.00 28.00 0 64.00 16.00 28.00 0\n"
      " 99999999999999999999 256000 float sum -1 64.00 16.00 28.00 0 64.00 16.00 28.00 0\n";
  Random random(11);
  int results = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    std::string text = whole.substr(0, random.below(whole.size() + 1));
    for (std::uint64_t i = random.below(4); i > 0 && !text.empty(); --i) {
      text[random.below(text.size())] = static_cast<char>(random.below(256));
    }
    try {
      for (const CollectiveSample& sample : read(text).samples) {
        ++results;
        EXPECT_GT(sample.time.median_seconds, 0);
        EXPECT_GE(sample.ranks, 2);
        EXPECT_EQ(sample.ranks % sample.nodes, 0);
      }
    } catch (const InputError&) {
    }
  }
  EXPECT_GT(results, 0);
}

}  // namespace
}  // namespace hydraulis
