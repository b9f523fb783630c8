// Profiles of jobs of several ranks: collectives checked, wrong and impossible ones left out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "costmodel/profiler/collective_case.h"
#include "costmodel/profiler/profiler.h"
#include "tests/costmodel/profiler/small_profile.h"
#include "tests/mpi_process.h"

namespace hydraulis {
namespace {

using test::CpuBench;
using test::mpi_process;

enum class Fault { none, wrong_value, does_nothing_later };

/// A communicator whose all-gather goes wrong from some size on.
class FaultyCommunicator : public Communicator {
 public:
  FaultyCommunicator(std::unique_ptr<Communicator> inner, Fault fault, std::int64_t from)
      : owned_(std::move(inner)), inner_(*owned_), fault_(fault), from_(from) {}
  FaultyCommunicator(Communicator& inner, Fault fault, std::int64_t from)
      : inner_(inner), fault_(fault), from_(from) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::unique_ptr<Communicator> subgroup(std::span<const int> ranks) override {
    return std::make_unique<FaultyCommunicator>(inner_.subgroup(ranks), fault_, from_);
  }
  void all_gather(const void* input, void* output, std::int64_t count, DataType type,
                  Stream& stream) override {
    const bool faulty = count * size_of(type) * size() >= from_;
    if (faulty && fault_ == Fault::does_nothing_later && count == seen_) return;
    seen_ = count;
    inner_.all_gather(input, output, count, type, stream);
    if (!faulty || fault_ != Fault::wrong_value || rank() != size() - 1) return;
    mpi_process().device->synchronize(stream);
    static_cast<char*>(output)[3] ^= 0x40;
  }
  void all_reduce(void* buffer, std::int64_t count, DataType type, Reduction reduction,
                  Stream& stream) override {
    inner_.all_reduce(buffer, count, type, reduction, stream);
  }
  void reduce_scatter(const void* input, void* output, std::int64_t count, DataType type,
                      Stream& stream) override {
    inner_.reduce_scatter(input, output, count, type, stream);
  }
  void broadcast(void* buffer, std::int64_t bytes, int root, Stream& stream) override {
    inner_.broadcast(buffer, bytes, root, stream);
  }
  void all_to_all_v(const void* input, std::span<const std::int64_t> send_bytes,
                    std::span<const std::int64_t> send_offsets, void* output,
                    std::span<const std::int64_t> receive_bytes,
                    std::span<const std::int64_t> receive_offsets, Stream& stream) override {
    inner_.all_to_all_v(input, send_bytes, send_offsets, output, receive_bytes, receive_offsets,
                        stream);
  }
  void exchange(std::span<const Message> messages, Channel channel, Stream& stream) override {
    inner_.exchange(messages, channel, stream);
  }
  void barrier() override { inner_.barrier(); }
  double timeout_seconds() const override { return inner_.timeout_seconds(); }
  void set_timeout_seconds(double seconds) override { inner_.set_timeout_seconds(seconds); }
  const Traffic& traffic() const override { return inner_.traffic(); }
  void reset_traffic() override { inner_.reset_traffic(); }
  [[noreturn]] void abort(int exit_code) override {
    inner_.abort(exit_code);
    std::abort();
  }

 private:
  std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  Fault fault_;
  std::int64_t from_;
  std::int64_t seen_ = 0;
};

/// Nothing but collectives.
ProfilerSettings collective_settings(std::int64_t max_bytes) {
  ProfilerSettings settings = test::small_settings();
  settings.models.clear();
  settings.max_bytes = max_bytes;
  return settings;
}

TEST(ProfilerMpi, EveryCollectiveOfEveryGroupIsCheckedAndMeasured) {
  const CpuBench cpu(mpi_process());
  const ProfilerResult result = profile_machine(cpu.bench, collective_settings(8192), {}, {});
  EXPECT_FALSE(result.data_check_failed);
  const OperatorProfile& profile = result.profile;
  std::set<std::pair<Collective, int>> seen;
  for (const CollectiveSample& sample : profile.collectives) {
    EXPECT_TRUE(sample.checked);
    EXPECT_GT(sample.time.median_seconds, 0);
    EXPECT_LE(sample.time.low_seconds, sample.time.median_seconds);
    seen.insert({sample.operation, sample.ranks});
  }
  const int ranks = cpu.bench.ranks();
  std::size_t expected = 0;
  for (int size = 2; size <= ranks; size *= 2) expected += size == 2 ? 6 : 5;  // messages: pairs
  EXPECT_EQ(seen.size(), expected);
  EXPECT_EQ(profile.ranks.size(), static_cast<std::size_t>(ranks));
  EXPECT_EQ(profile.machine.nodes, 1);
}

TEST(ProfilerMpi, KernelsAreMeasuredOnAllRanksAtOnce) {
  const CpuBench cpu(mpi_process());
  ProfilerSettings settings = test::small_settings();
  settings.max_bytes = 1024;
  const OperatorProfile profile = profile_machine(cpu.bench, settings, {}, {}).profile;
  // The same on every rank: the slowest one's.
  for (const KernelSample& sample : profile.kernels) {
    const std::vector<double> all = gather(cpu.bench, {sample.time.median_seconds});
    for (const double one : all) EXPECT_EQ(one, all[0]);
  }
  EXPECT_FALSE(profile.kernels.empty());
}

// Case B04: the size that came out wrong is left out and named, the others stay.
TEST(ProfilerMpi, WrongDataLeavesItsSizeOut) {
  if (mpi_process().world->size() == 1) return;
  CpuBench cpu(mpi_process());
  FaultyCommunicator world(*mpi_process().world, Fault::wrong_value, 4096);
  cpu.bench.world = &world;
  // The profiler's own messages are small, and gathered in double precision.
  const ProfilerResult result = profile_machine(cpu.bench, collective_settings(16384), {}, {});
  EXPECT_TRUE(result.data_check_failed);
  std::set<std::int64_t> good;
  for (const CollectiveSample& sample : result.profile.collectives) {
    if (sample.operation == Collective::all_gather) good.insert(sample.bytes);
  }
  EXPECT_EQ(good, std::set<std::int64_t>{1024});
  ASSERT_FALSE(result.profile.excluded.empty());
  const ExcludedPoint& excluded = result.profile.excluded.front();
  EXPECT_EQ(excluded.what.rfind("all_gather, 2 ranks on 1 node, 4096 bytes", 0), 0u)
      << excluded.what;
  EXPECT_NE(excluded.reason.find("1 values are wrong on rank"), std::string::npos)
      << excluded.reason;
}

// Case B03: right once and then in no time at all: over every ceiling.
TEST(ProfilerMpi, ImpossibleTimesAreLeftOut) {
  if (mpi_process().world->size() == 1) return;
  CpuBench cpu(mpi_process());
  constexpr std::int64_t kLarge = std::int64_t{4} << 20;
  FaultyCommunicator world(*mpi_process().world, Fault::does_nothing_later, kLarge);
  cpu.bench.world = &world;
  const ProfilerResult result = profile_machine(cpu.bench, collective_settings(kLarge), {}, {});
  EXPECT_FALSE(result.data_check_failed);
  EXPECT_TRUE(std::ranges::any_of(result.profile.excluded, [](const ExcludedPoint& point) {
    return point.what.rfind("all_gather", 0) == 0 &&
           point.reason.find("over the ceiling") != std::string::npos;
  }));
  for (const CollectiveSample& sample : result.profile.collectives) {
    EXPECT_FALSE(sample.operation == Collective::all_gather && sample.bytes >= kLarge);
  }
}

TEST(ProfilerMpi, CollectivesInDoublePrecisionAndOddSizes) {
  const CpuBench cpu(mpi_process(), DataType::f64);
  Communicator& world = *mpi_process().world;
  const int ranks = world.size();
  for (const std::int64_t wanted : {1, 1000, 12345}) {
    const std::int64_t bytes = divisible_bytes(wanted, ranks, DataType::f64);
    EXPECT_GE(bytes, wanted);
    EXPECT_EQ(bytes % (8 * ranks), 0);
    for (const Collective operation :
         {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
          Collective::broadcast, Collective::all_to_all}) {
      CollectiveCase measured(cpu.bench, world, operation, bytes, 3);
      EXPECT_EQ(measured.wrong_values(), 0) << to_string(operation);
      EXPECT_GE(measured.run(3), 0);
      EXPECT_EQ(measured.wrong_values(), 0) << to_string(operation);
    }
  }
}

TEST(ProfilerMpi, TextsAndAnswersOfAllRanks) {
  const CpuBench cpu(mpi_process());
  const int rank = cpu.bench.rank();
  const auto texts = gather_texts(cpu.bench, std::string(static_cast<std::size_t>(rank) * 7, 'x'));
  ASSERT_EQ(texts.size(), static_cast<std::size_t>(cpu.bench.ranks()));
  for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i].size(), 7 * i);
  EXPECT_EQ(everywhere(cpu.bench, rank != cpu.bench.ranks() - 1), false);
  EXPECT_TRUE(everywhere(cpu.bench, true));
  EXPECT_TRUE(as_first_rank(cpu.bench, rank == 0));
  EXPECT_FALSE(as_first_rank(cpu.bench, rank != 0));
}

}  // namespace
}  // namespace hydraulis
