#include "costmodel/profiler/profiler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/random.h"
#include "costmodel/compose_operations.h"
#include "costmodel/profiler/machine.h"
#include "tests/base/temporary_folder.h"
#include "tests/costmodel/expect_error.h"
#include "tests/costmodel/profiler/small_profile.h"

namespace hydraulis {
namespace {

using test::CpuBench;
using test::small_model;
using test::small_settings;

bool has_note(const OperatorProfile& profile, const std::string& part) {
  return std::ranges::any_of(
      profile.notes, [&](const auto& note) { return note.find(part) != std::string::npos; });
}

// Case B03: one rank communicates with nobody, and the profile says so.
TEST(Profiler, OneRankMeasuresKernelsAndCopiesAndSkipsCollectives) {
  CpuProcess process = start_cpu_process(1);
  const CpuBench cpu(process);
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  ProfilerListener listener;
  listener.progress = [&](std::uint64_t now, std::uint64_t of) {
    EXPECT_EQ(now, done + 1);
    done = now;
    total = of;
  };
  const ProfilerResult result = profile_machine(cpu.bench, small_settings(), {}, listener);
  const OperatorProfile& profile = result.profile;
  EXPECT_FALSE(result.data_check_failed);
  EXPECT_TRUE(profile.collectives.empty());
  EXPECT_TRUE(has_note(profile, "one rank"));
  EXPECT_EQ(done, total);
  EXPECT_EQ(profile.kernels.size() + profile.copies.size() + profile.excluded.size(), total);
  for (const KernelShape& shape : kernel_shapes(small_model(), 1)) {
    EXPECT_TRUE(std::ranges::any_of(profile.kernels, [&](const auto& sample) {
      return sample.shape == shape && sample.tokens == 64;
    })) << to_string(shape);
  }
  std::set<CopyDirection> directions;
  for (const CopySample& sample : profile.copies) directions.insert(sample.direction);
  EXPECT_EQ(directions.size(), 3u);
  EXPECT_EQ(profile.machine.ranks, 1);
  EXPECT_EQ(profile.machine.backend, "cpu");
  EXPECT_GT(profile.machine.peak_flops, 0);
  EXPECT_GT(profile.machine.memory_bytes_per_second, 0);
  ASSERT_EQ(profile.ranks.size(), 1u);
  EXPECT_LE(profile.ranks[0].flops, profile.machine.peak_flops);
  EXPECT_NO_THROW(check_operator_profile(profile, "p"));

  // As a file, and gone on with: nothing is measured again and nothing is lost.
  const TemporaryFolder folder;
  write_operator_profile(profile, folder / "p.h5");
  const OperatorProfile standing = read_operator_profile(folder / "p.h5");
  ASSERT_EQ(standing.ranks.size(), 1u);
  EXPECT_EQ(standing.ranks[0].host, profile.ranks[0].host);
  EXPECT_EQ(standing.ranks[0].flops, profile.ranks[0].flops);
  OperatorProfile half = standing;
  half.kernels.resize(half.kernels.size() / 2);
  half.copies.clear();
  const OperatorProfile whole = profile_machine(cpu.bench, small_settings(), half, {}).profile;
  EXPECT_EQ(whole.kernels.size() + whole.copies.size() + whole.excluded.size(), total);
  for (std::size_t i = 0; i < half.kernels.size(); ++i) {
    EXPECT_EQ(whole.kernels[i].time.median_seconds, half.kernels[i].time.median_seconds);
  }
}

TEST(Profiler, StopsWhenTimeIsUpAndSaysWhatIsMissing) {
  CpuProcess process = start_cpu_process(1);
  const CpuBench cpu(process);
  ProfilerSettings settings = small_settings();
  settings.most_seconds = 1e-6;
  const OperatorProfile profile = profile_machine(cpu.bench, settings, {}, {}).profile;
  EXPECT_TRUE(profile.kernels.empty());
  EXPECT_TRUE(has_note(profile, "--resume"));
}

/// A clock by which half of all work takes a millisecond more: frequencies that change.
double unsteady_seconds() {
  static double added = 0;
  static Random random(8);
  added += 1e-3 * static_cast<double>(random.below(2));
  return wall_seconds() + added;
}

// Case B08: times that move are stored with their spread, and the profile warns.
TEST(Profiler, WarnsOfTimesThatMove) {
  CpuProcess process = start_cpu_process(1);
  CpuBench cpu(process);
  cpu.bench.clock = unsteady_seconds;
  const OperatorProfile profile = profile_machine(cpu.bench, small_settings(), {}, {}).profile;
  EXPECT_TRUE(has_note(profile, "warning"));
  EXPECT_TRUE(has_note(profile, "spread by more than 25 %"));
  ASSERT_FALSE(profile.kernels.empty());
  const auto spread = std::ranges::count_if(profile.kernels, [](const KernelSample& sample) {
    return sample.time.high_seconds > 1.25 * sample.time.low_seconds;
  });
  EXPECT_GT(2 * spread, std::ssize(profile.kernels));
}

// Case B05: sizes over the device's memory are left out, and the profile says what was reached.
TEST(Profiler, SizesOverTheMemoryAreNamed) {
  CpuProcess process = start_cpu_process(1, std::int64_t{200} << 20);
  const CpuBench cpu(process);
  ProfilerSettings settings = small_settings();
  settings.max_bytes = std::int64_t{1} << 30;
  const OperatorProfile profile = profile_machine(cpu.bench, settings, {}, {}).profile;
  EXPECT_TRUE(has_note(profile, "does not fit")) << profile.notes.size();
  for (const CopySample& sample : profile.copies) EXPECT_LT(sample.bytes, std::int64_t{200} << 20);
  EXPECT_FALSE(profile.copies.empty());
}

TEST(Profiler, GoesOnOnlyWithWhatThisJobCouldHaveMeasured) {
  CpuProcess process = start_cpu_process(1);
  const CpuBench cpu(process);
  const MachineDescription machine = describe_machine(cpu.bench, {"a"}, "cpu");
  OperatorProfile standing;
  standing.machine = machine;
  standing.kernels.resize(1);
  EXPECT_NO_THROW(check_resumable(standing, machine, DataType::f32, "p.h5"));
  const auto refused = [&](const char* part) {
    expect_error<InputError>([&] { check_resumable(standing, machine, DataType::f32, "p.h5"); },
                             {"p.h5", part});
    standing.machine = machine;
  };
  standing.machine.ranks = 2;
  refused("machine.ranks");
  standing.machine.threads_per_rank += 1;
  refused("threads_per_rank");
  standing.machine.processor = "another";
  refused("another");
  standing.kernels[0].data_type = "f64";
  refused("f64");
}

// Cases B06 and F01: what was found is said, and what helps.
TEST(MachineRemarks, SayWhatWasFoundAndTheFix) {
  MachineDescription machine;
  machine.backend = "cpu";
  machine.cores = 4;
  machine.ranks = 8;
  machine.threads_per_rank = 1;
  const auto lines = machine_remarks(machine, 8);
  ASSERT_GE(lines.size(), 2u);
  EXPECT_NE(lines[0].find("8 ranks on 1 node, 4 cores"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("/dev/shm"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("mpirun -n 4"), std::string::npos) << lines[1];
  machine.ranks = 4;
  EXPECT_EQ(machine_remarks(machine, 2).size(), 1u);
  machine.ranks = 1;
  EXPECT_NE(machine_remarks(machine, 1)[1].find("mpirun -n RANKS"), std::string::npos);
}

}  // namespace
}  // namespace hydraulis
