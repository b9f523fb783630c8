#include "costmodel/profile.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/hdf5.h"
#include "tests/costmodel/expect_error.h"

namespace hydraulis {
namespace {

class ProfileFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("hydraulis_profile_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return (folder_ / "p.h5").string(); }
  std::filesystem::path folder_;
};

TEST(Profile, PresetsKeepThePublishedNumbers) {
  const Profile p32 = load_profile("a800-llama-32b");
  ASSERT_EQ(p32.schemes.size(), 15u);
  EXPECT_EQ(load_profile("a800-llama-13b").schemes.size(), 12u);
  EXPECT_EQ(load_profile("a800-llama-7b").schemes.size(), 13u);
  const SchemeCoefficients& last = p32.schemes.back();
  EXPECT_EQ(to_string(last.scheme), "(1,16,1)");
  EXPECT_DOUBLE_EQ(last.a, 1.37779723e-9);
  EXPECT_DOUBLE_EQ(last.b, 0.102435387e-3);
  EXPECT_DOUBLE_EQ(last.c, 0.14574761115393085);
  EXPECT_EQ(p32.min_tokens_by_tp.at(16), 1280);
  EXPECT_EQ(p32.schemes.front().a, 0);  // kept as published, with a note
  EXPECT_FALSE(p32.analytic);
  EXPECT_TRUE(p32.contains_tensor_parallel_communication);
  EXPECT_FALSE(p32.contains_pipeline_communication);
  EXPECT_EQ(p32.limits.size(), 5u);
  for (const char* name : {"a800-llama-7b", "a800-llama-13b", "a800-llama-32b"}) {
    EXPECT_NO_THROW(check_profile(load_profile(name), name));
  }
}

TEST_F(ProfileFile, RoundTrip) {
  Profile profile = load_profile("a800-llama-13b");
  profile.schemes[3].scheme.recompute = Recompute::full;
  profile.analytic = true;
  write_profile(profile, path());
  const Profile read = load_profile(path());
  EXPECT_EQ(read.name, profile.name);
  EXPECT_EQ(read.device, profile.device);
  EXPECT_EQ(read.origin, profile.origin);
  EXPECT_TRUE(read.analytic);
  EXPECT_EQ(read.model.name, profile.model.name);
  EXPECT_EQ(parameter_count(read.model), parameter_count(profile.model));
  ASSERT_EQ(read.schemes.size(), profile.schemes.size());
  for (std::size_t i = 0; i < read.schemes.size(); ++i) {
    EXPECT_EQ(read.schemes[i].scheme, profile.schemes[i].scheme);
    EXPECT_EQ(read.schemes[i].a, profile.schemes[i].a);
    EXPECT_EQ(read.schemes[i].b, profile.schemes[i].b);
    EXPECT_EQ(read.schemes[i].c, profile.schemes[i].c);
  }
  EXPECT_EQ(read.min_tokens_by_tp, profile.min_tokens_by_tp);
  EXPECT_EQ(read.memory.activation_bytes_by_tp, profile.memory.activation_bytes_by_tp);
  EXPECT_EQ(read.memory.state_bytes, profile.memory.state_bytes);
  EXPECT_EQ(read.memory.safety_bytes, profile.memory.safety_bytes);
  EXPECT_EQ(read.limits, profile.limits);
}

TEST_F(ProfileFile, EveryDatasetHasUnits) {
  write_profile(load_profile("a800-llama-7b"), path());
  const Hdf5File file = Hdf5File::open(path());
  int datasets = 0;
  for (const std::string group : {"/schemes", "/utilisation", "/memory"}) {
    for (const std::string& name : file.members(group)) {
      EXPECT_FALSE(file.text_attribute(group + "/" + name, "units").empty()) << name;
      ++datasets;
    }
  }
  EXPECT_EQ(datasets, 11);
}

TEST_F(ProfileFile, RefusesBadNumbers) {
  const auto refused = [&](auto change, const std::string& field) {
    Profile profile = load_profile("a800-llama-7b");
    change(profile);
    expect_error<InputError>([&] { write_profile(profile, path()); }, {"p.h5", field});
    EXPECT_FALSE(std::filesystem::exists(path()));
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  refused([&](Profile& p) { p.schemes[2].a = nan; }, "schemes[2].a");
  refused([&](Profile& p) { p.schemes[0].b = -1; }, "schemes[0].b");
  refused([&](Profile& p) { p.schemes[1].c = INFINITY; }, "schemes[1].c");
  refused([&](Profile& p) { p.schemes[1].a = p.schemes[1].b = 0; }, "schemes[1].a");
  refused([&](Profile& p) { p.schemes[1].scheme.tp = 0; }, "schemes[1].tp");
  refused([&](Profile& p) { p.schemes[1].scheme.pp = 33; }, "schemes[1].pp");
  refused([&](Profile& p) { p.schemes[1].scheme = p.schemes[0].scheme; }, "schemes[1]");
  refused([&](Profile& p) { p.schemes.clear(); }, "schemes");
  refused([&](Profile& p) { p.model.heads = 0; }, "num_attention_heads");
  refused([&](Profile& p) { p.memory.optimizer_share = 1.5; }, "memory.optimizer_share");
  refused([&](Profile& p) { p.memory.activation_bytes_by_tp[4] = nan; }, "activation_bytes[tp=4]");
}

TEST_F(ProfileFile, RefusesOtherAndDamagedFiles) {
  expect_error<InputError>([&] { load_profile(path()); }, {"p.h5", "a800-llama-32b"});
  std::ofstream(path()) << "not hdf5";
  expect_error<InputError>([&] { load_profile(path()); }, {"p.h5", "HDF5"});
  std::filesystem::remove(path());
  {
    Hdf5File file = Hdf5File::create(path(), "p.h5");
    file.set_attribute("/", "format", std::string("something-else"));
    file.close();
  }
  expect_error<InputError>([&] { load_profile(path()); }, {"p.h5", "format", "not a profile"});
  write_profile(load_profile("a800-llama-7b"), path());
  const auto whole = std::filesystem::file_size(path());
  for (const auto size : {whole - 1, whole / 2, whole / 4, std::uintmax_t{100}}) {
    std::filesystem::resize_file(path(), size);
    EXPECT_THROW(load_profile(path()), InputError) << size;
  }
}

}  // namespace
}  // namespace hydraulis
