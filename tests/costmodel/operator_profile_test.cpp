#include "costmodel/operator_profile.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "base/hdf5.h"
#include "costmodel/profile.h"
#include "tests/costmodel/expect_error.h"
#include "tests/costmodel/synthetic_machine.h"

namespace hydraulis {
namespace {

using testing::measure;
using testing::SyntheticMachine;
using testing::tiny_model;

class OperatorProfileFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("hydraulis_operators_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return (folder_ / "p.h5").string(); }
  std::filesystem::path folder_;
};

OperatorProfile example() {
  OperatorProfile profile = measure(SyntheticMachine(), tiny_model(), 256);
  profile.machine.processor = "a processor";
  profile.machine.cores = 2;
  profile.machine.threads_per_rank = 1;
  profile.machine.software = {{"compiler", "g++ 12"}, {"mpi", "4.1"}};
  profile.machine.date = "2026-01-01T00:00:00Z";
  profile.machine.clock_hertz = 2.5e9;
  profile.copies.push_back({CopyDirection::device_to_host, 4096, {2e-6, 1e-6, 3e-6, 11, false}});
  profile.memory.process_bytes = 12345;
  profile.excluded.push_back({"all_reduce of 64 ranks", "the job has 4"});
  profile.notes = {"the clock fell by 3 %"};
  return profile;
}

TEST_F(OperatorProfileFile, RoundTrip) {
  const OperatorProfile written = example();
  write_operator_profile(written, path());
  const OperatorProfile read = read_operator_profile(path());
  EXPECT_EQ(read.name, written.name);
  EXPECT_EQ(read.origin, written.origin);
  EXPECT_EQ(read.machine.device, "synthetic");
  EXPECT_EQ(read.machine.host, "");
  EXPECT_EQ(read.machine.processor, "a processor");
  EXPECT_EQ(read.machine.software, written.machine.software);
  EXPECT_EQ(read.machine.clock_hertz, 2.5e9);
  ASSERT_EQ(read.kernels.size(), written.kernels.size());
  for (std::size_t i = 0; i < read.kernels.size(); ++i) {
    EXPECT_EQ(read.kernels[i].shape, written.kernels[i].shape);
    EXPECT_EQ(read.kernels[i].tokens, written.kernels[i].tokens);
    EXPECT_EQ(read.kernels[i].length, written.kernels[i].length);
    EXPECT_EQ(read.kernels[i].data_type, "f32");
    EXPECT_EQ(read.kernels[i].time.median_seconds, written.kernels[i].time.median_seconds);
  }
  ASSERT_EQ(read.collectives.size(), written.collectives.size());
  EXPECT_EQ(read.collectives.back().operation, Collective::send);
  EXPECT_EQ(read.collectives.back().bytes, written.collectives.back().bytes);
  EXPECT_TRUE(read.collectives.back().checked);
  ASSERT_EQ(read.copies.size(), 1u);
  EXPECT_EQ(read.copies[0].direction, CopyDirection::device_to_host);
  EXPECT_EQ(read.copies[0].time.high_seconds, 3e-6);
  EXPECT_EQ(read.copies[0].time.repeats, 11);
  EXPECT_FALSE(read.copies[0].time.steady);
  EXPECT_EQ(read.memory.process_bytes, 12345);
  EXPECT_EQ(read.memory.workspace_bytes, -1);
  ASSERT_EQ(read.excluded.size(), 1u);
  EXPECT_EQ(read.excluded[0].reason, "the job has 4");
  EXPECT_EQ(read.notes, written.notes);
}

TEST_F(OperatorProfileFile, HoldsFitsWithResidualsAndUnits) {
  write_operator_profile(example(), path());
  const Hdf5File file = Hdf5File::open(path());
  EXPECT_EQ(file.text_attribute("/", "kind"), "operators");
  const auto mean = file.read<double>("/fits/kernels/mean_error");
  const auto max = file.read<double>("/fits/kernels/max_error");
  ASSERT_FALSE(mean.empty());
  EXPECT_EQ(mean.size(), file.read_texts("/fits/kernels/kernel").size());
  for (std::size_t i = 0; i < mean.size(); ++i) EXPECT_LE(mean[i], max[i]);
  for (const std::string group : {"/samples/kernels", "/samples/collectives", "/samples/copies",
                                  "/fits/kernels", "/fits/collectives", "/fits/copies",
                                  "/fits/kernels/pieces", "/excluded", "/machine/software"}) {
    for (const std::string& name : file.members(group)) {
      if (name == "pieces") continue;
      EXPECT_FALSE(file.text_attribute(group + "/" + name, "units").empty()) << group << name;
    }
  }
}

TEST_F(OperatorProfileFile, RefusesBadNumbersByField) {
  const auto refused = [&](auto change, const std::string& field) {
    OperatorProfile profile = example();
    change(profile);
    expect_error<InputError>([&] { write_operator_profile(profile, path()); }, {field});
    EXPECT_FALSE(std::filesystem::exists(path()));
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const double bad : {nan, inf, -1.0, 0.0}) {
    refused([&](OperatorProfile& p) { p.kernels[3].time.median_seconds = bad; },
            "kernels[3].time.median_seconds");
    refused([&](OperatorProfile& p) { p.collectives[2].time.median_seconds = bad; },
            "collectives[2].time.median_seconds");
    refused([&](OperatorProfile& p) { p.copies[0].time.median_seconds = bad; },
            "copies[0].time.median_seconds");
  }
  refused(
      [](OperatorProfile& p) {
        p.kernels.clear();
        p.collectives.clear();
      },
      "kernels");
  refused([](OperatorProfile& p) { p.kernels[0].tokens = 0; }, "kernels[0].tokens");
  refused([](OperatorProfile& p) { p.kernels[0].time.low_seconds = 1; }, "low ≤ median ≤ high");
  refused([](OperatorProfile& p) { p.kernels[0].shape = {}; }, "kernels[0].inputs");
  refused([](OperatorProfile& p) { p.collectives[0].ranks = 1; }, "collectives[0].ranks");
  refused([](OperatorProfile& p) { p.collectives[0].nodes = 3; }, "collectives[0].nodes");
  refused([](OperatorProfile& p) { p.collectives[0].bytes = -5; }, "collectives[0].bytes");
  refused([&](OperatorProfile& p) { p.machine.peak_flops = nan; }, "machine.peak_flops");
  refused([](OperatorProfile& p) { p.machine.device.clear(); }, "machine.device");
}

TEST_F(OperatorProfileFile, KindsAreToldApart) {
  write_profile(load_profile("a800-llama-7b"), path());
  expect_error<InputError>([&] { read_operator_profile(path()); }, {"whole stages"});
  write_operator_profile(example(), path());
  const Profile profile = load_profile(path());
  EXPECT_TRUE(profile.operators);
  EXPECT_EQ(profile.device, "synthetic");
  expect_error<InputError>([&] { write_profile(profile, path()); }, {"model"});
}

TEST_F(OperatorProfileFile, DamagedFilesAreRefused) {
  write_operator_profile(example(), path());
  const auto size = std::filesystem::file_size(path());
  for (const double share : {0.1, 0.5, 0.9}) {
    write_operator_profile(example(), path());
    std::filesystem::resize_file(path(),
                                 static_cast<std::uintmax_t>(static_cast<double>(size) * share));
    EXPECT_THROW(load_profile(path()), InputError);
  }
}

TEST(OperatorNames, AreTheirOwnInverse) {
  for (int i = 0; i < kKernels; ++i) {
    const auto kernel = static_cast<Kernel>(i);
    EXPECT_EQ(parse_kernel(to_string(kernel), "test"), kernel);
  }
  for (int i = 0; i < kCollectives; ++i) {
    const auto operation = static_cast<Collective>(i);
    EXPECT_EQ(parse_collective(to_string(operation), "test"), operation);
  }
  for (int i = 0; i < kCopyDirections; ++i) {
    const auto direction = static_cast<CopyDirection>(i);
    EXPECT_EQ(parse_copy_direction(to_string(direction), "test"), direction);
  }
  expect_error<InputError>([] { parse_kernel("gemv", "p.h5"); }, {"gemm_forward"});
}

}  // namespace
}  // namespace hydraulis
