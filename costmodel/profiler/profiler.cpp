#include "costmodel/profiler/profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "base/error.h"
#include "costmodel/kernel_work.h"
#include "costmodel/nccl_tests.h"
#include "costmodel/profiler/collective_case.h"
#include "costmodel/profiler/group_shapes.h"
#include "costmodel/profiler/kernel_case.h"
#include "costmodel/profiler/kernel_grid.h"
#include "costmodel/profiler/machine.h"
#include "costmodel/profiler/reference.h"

namespace hydraulis {
namespace {

constexpr std::int64_t kLeastBytes = 1024;
constexpr double kSaveEverySeconds = 10;
constexpr double kLookEverySeconds = 10;
constexpr double kLargeSpread = 0.25;
constexpr double kLargeDrift = 0.1;
constexpr double kWarmUpSeconds = 3;
constexpr double kLongestCallSeconds = 10;
constexpr double kLongestQuickCallSeconds = 0.5;

/// Share of the time that ranks waited for a core, from which on it is told.
constexpr double kWaitingShare = 0.05;

double seconds_since(double start) { return wall_seconds() - start; }

SamplingLimits sampling_limits(bool quick) {
  SamplingLimits limits;
  if (!quick) return limits;
  limits.most_repeats = 48;
  limits.most_seconds = 0.3;
  limits.relative_interval = 0.05;
  limits.most_warm_up_seconds = 0.03;
  limits.most_warm_ups = 8;
  return limits;
}

/// Sets of arguments that a kernel, collective or copy is measured with in turn. Training's kernels
/// find the weights of another layer and the activations of the whole stage between two uses of
/// theirs, so what they read is in no cache that is smaller than that.
int argument_sets(std::int64_t bytes) {
  constexpr std::int64_t kBetweenUses = std::int64_t{64} << 20;
  constexpr std::int64_t kMostSets = 16;
  return static_cast<int>(
      std::clamp<std::int64_t>(kBetweenUses / std::max<std::int64_t>(bytes, 1), 1, kMostSets));
}

/// Smallest first.
std::vector<std::int64_t> message_sizes(const ProfilerSettings& settings) {
  const int factor = settings.quick ? 4 : 2;
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = kLeastBytes; size < settings.max_bytes; size *= factor) {
    sizes.push_back(size);
  }
  sizes.push_back(settings.max_bytes);
  return sizes;
}

std::vector<int> tensor_degrees(const ProfilerSettings& settings, int ranks) {
  if (!settings.tensor_parallel.empty()) return settings.tensor_parallel;
  std::vector<int> degrees;
  for (int degree = 1; degree <= ranks; degree *= 2) degrees.push_back(degree);
  return degrees;
}

class Profiling {
 public:
  Profiling(const Bench& bench, const ProfilerSettings& settings, const OperatorProfile& standing,
            const ProfilerListener& listener)
      : bench_(with_elapsed(bench, elapsed_)),
        settings_(settings),
        standing_(standing),
        listener_(listener),
        limits_(sampling_limits(settings.quick)),
        hosts_(hosts_of_ranks(bench)),
        shapes_(group_shapes(hosts_)),
        reference_(bench) {}

  ProfilerResult run() {
    begin();
    const std::vector<std::int64_t> sizes = message_sizes(settings_);
    KernelGridSettings grid;
    grid.models = settings_.models;
    grid.tensor_parallel = tensor_degrees(settings_, bench_.ranks());
    grid.max_tokens = settings_.max_tokens;
    grid.ranks = bench_.ranks();
    const std::vector<KernelPoint> kernels = kernel_grid(grid);
    total_ = kernels.size() + sizes.size() * kCopyDirections;
    for (const GroupShape& shape : shapes_) total_ += operations(shape).size() * sizes.size();

    for (const GroupShape& shape : shapes_) measure_group(shape, sizes);
    measure_copies(sizes);
    for (const KernelPoint& point : kernels) measure_kernel(point);
    finish();
    return std::move(result_);
  }

 private:
  static Bench with_elapsed(Bench bench, Elapsed& elapsed) {
    bench.elapsed = &elapsed;
    return bench;
  }

  OperatorProfile& profile() { return result_.profile; }

  void begin() {
    profile() = standing_;
    profile().excluded.clear();
    profile().notes.clear();
    profile().ranks.clear();
    profile().name = settings_.name;
    profile().origin = "measured by hydraulis profile";
    profile().machine = describe_machine(bench_, hosts_, settings_.backend);
    profile().memory.process_bytes = bench_.device->memory().reserved;
    ceilings_ = reference_.warm_up(kWarmUpSeconds);
    const std::vector<double> copies = reference_.copy_rates();
    profile().machine.peak_flops = ceilings_.flops;
    profile().machine.memory_bytes_per_second = *std::max_element(copies.begin(), copies.end());
    const std::vector<double> rates = reference_.rates();
    for (int rank = 0; rank < bench_.ranks(); ++rank) {
      const auto i = static_cast<std::size_t>(rank);
      profile().ranks.push_back({rank, hosts_[i], rates[i], copies[i]});
    }
    look(rates);
    if (bench_.ranks() == 1) note("one rank: no collective was measured");
  }

  void note(std::string text) { profile().notes.push_back(std::move(text)); }
  void exclude(std::string what, std::string reason) {
    profile().excluded.push_back({std::move(what), std::move(reason)});
  }

  /// Keeps in mind how fast the reference product was.
  void look(const std::vector<double>& rates) {
    slowest_look_ = std::min(slowest_look_, *std::min_element(rates.begin(), rates.end()));
    fastest_look_ = std::max(fastest_look_, *std::max_element(rates.begin(), rates.end()));
    last_look_ = wall_seconds();
  }

  /// Whether a point is to be measured; the same answer on every rank.
  bool wanted(bool stands) {
    ++done_;
    if (listener_.progress && bench_.rank() == 0) listener_.progress(done_, total_);
    const bool late = settings_.most_seconds > 0 && seconds_since(start_) > settings_.most_seconds;
    if (as_first_rank(bench_, stands)) return false;
    if (as_first_rank(bench_, late)) {
      ++left_out_;
      return false;
    }
    if (as_first_rank(bench_, seconds_since(last_look_) > kLookEverySeconds)) {
      look(reference_.rates());
    }
    return true;
  }

  /// A point stands in the profile.
  void measured(const Sampled& sampled, const std::string& what) {
    ++measured_;
    outliers_ += sampled.outliers;
    unsteady_ += sampled.time.steady ? 0 : 1;
    if (sampled.spread > kLargeSpread) ++wide_;
    if (sampled.spread > widest_) {
      widest_ = sampled.spread;
      widest_what_ = what;
    }
    if (listener_.save && bench_.rank() == 0 && seconds_since(saved_) > kSaveEverySeconds) {
      listener_.save(profile());
      saved_ = wall_seconds();
    }
  }

  /// Makes something on every rank; empty, with a note, when it does not fit on some.
  template <typename Case, typename Make>
  std::unique_ptr<Case> make_everywhere(const std::string& what, Make make) {
    std::unique_ptr<Case> made;
    std::string problem;
    try {
      made = make();
    } catch (const InfeasibleError& error) {
      problem = error.what();
    }
    if (everywhere(bench_, problem.empty())) return made;
    const std::vector<std::string> problems = gather_texts(bench_, problem);
    const auto first = std::ranges::find_if(problems, [](const auto& p) { return !p.empty(); });
    note(fmt::format("{}: does not fit (rank {}: {})", what, first - problems.begin(), *first));
    return nullptr;
  }

  static std::vector<Collective> operations(const GroupShape& shape) {
    std::vector<Collective> all;
    for (int i = 0; i < kCollectives; ++i) {
      const auto operation = static_cast<Collective>(i);
      if (operation != Collective::send || shape.ranks == 2) all.push_back(operation);
    }
    return all;
  }

  void measure_group(const GroupShape& shape, const std::vector<std::int64_t>& sizes) {
    std::unique_ptr<Communicator> group;
    for (const std::vector<int>& members : shape.groups) {
      if (std::ranges::find(members, bench_.rank()) != members.end()) {
        group = bench_.world->subgroup(members);
      }
    }
    for (const Collective operation : operations(shape)) {
      std::int64_t reached = 0;
      for (const std::int64_t size : sizes) {
        const std::int64_t bytes = divisible_bytes(size, shape.ranks, wide_type(bench_.type));
        if (bytes == reached) continue;
        if (!measure_collective(group.get(), shape, operation, bytes, reached)) break;
        reached = bytes;
      }
    }
  }

  /// False when the buffers do not fit: larger ones will not either.
  bool measure_collective(Communicator* group, const GroupShape& shape, Collective operation,
                          std::int64_t bytes, std::int64_t reached) {
    const std::string what =
        fmt::format("{}, {} ranks on {} node{}, {} bytes", to_string(operation), shape.ranks,
                    shape.nodes, shape.nodes == 1 ? "" : "s", bytes);
    const bool stands = std::ranges::any_of(profile().collectives, [&](const auto& sample) {
      return sample.operation == operation && sample.ranks == shape.ranks &&
             sample.nodes == shape.nodes && sample.bytes == bytes;
    });
    if (!wanted(stands)) return true;
    const auto measuring = make_everywhere<CollectiveCase>(what, [&] {
      if (group == nullptr) return std::unique_ptr<CollectiveCase>();
      return std::make_unique<CollectiveCase>(bench_, *group, operation, bytes,
                                              argument_sets(2 * bytes));
    });
    // Ranks outside the groups go by what those inside found.
    if (!everywhere(bench_, group == nullptr || measuring != nullptr)) {
      note(fmt::format("{}, {} ranks: the largest size measured is {} bytes of {} asked for",
                       to_string(operation), shape.ranks, reached, settings_.max_bytes));
      return false;
    }
    const auto run = [&](int times) { return measuring ? measuring->run(times) : 0.0; };
    const std::vector<double> wrong =
        gather(bench_, {measuring ? static_cast<double>(measuring->wrong_values()) : 0.0});
    const auto first = std::ranges::find_if(wrong, [](double count) { return count > 0; });
    if (first != wrong.end()) {
      result_.data_check_failed = true;
      exclude(what, fmt::format("data check failed: {:.0f} values are wrong on rank {}", *first,
                                first - wrong.begin()));
      return true;
    }
    const Sampled sampled = sample_run(bench_, run, limits_);
    const double bus = static_cast<double>(bytes) * bus_factor(operation, shape.ranks) /
                       sampled.time.median_seconds;
    if (impossible(what, bus, ceilings_.bytes_per_second, "GB/s on the bus", sampled)) return true;
    profile().collectives.push_back(
        {operation, shape.ranks, shape.nodes, bytes, sampled.time, true});
    measured(sampled, what);
    return true;
  }

  /// Names a point that cannot be and says so.
  bool impossible(const std::string& what, double rate, double ceiling, const char* unit,
                  const Sampled& sampled) {
    if (sampled.time.median_seconds > 0 && rate <= ceiling) return false;
    exclude(what,
            fmt::format("{:.3g} us are {:.4g} {}, over the ceiling of {:.4g}",
                        1e6 * sampled.time.median_seconds, rate * 1e-9, unit, ceiling * 1e-9));
    return true;
  }

  void measure_copies(const std::vector<std::int64_t>& sizes) {
    for (int i = 0; i < kCopyDirections; ++i) {
      for (const std::int64_t bytes : sizes) {
        if (!measure_copy(static_cast<CopyDirection>(i), bytes)) break;
      }
    }
  }

  bool measure_copy(CopyDirection direction, std::int64_t bytes) {
    const std::string what = fmt::format("copy {}, {} bytes", to_string(direction), bytes);
    const bool stands = std::ranges::any_of(profile().copies, [&](const CopySample& sample) {
      return sample.direction == direction && sample.bytes == bytes;
    });
    if (!wanted(stands)) return true;
    struct Buffers {
      DeviceBuffer from;
      DeviceBuffer to;
      std::vector<char> host;
    };
    const auto sets = make_everywhere<std::vector<Buffers>>(what, [&] {
      auto made = std::make_unique<std::vector<Buffers>>(
          static_cast<std::size_t>(argument_sets(2 * bytes)));
      for (Buffers& set : *made) {
        set.from = DeviceBuffer(*bench_.device, bytes);
        fill(bench_, set.from, bench_.type);
        if (direction == CopyDirection::device_to_device) {
          set.to = DeviceBuffer(*bench_.device, bytes);
        } else {
          set.host.assign(static_cast<std::size_t>(bytes), 1);
        }
      }
      return made;
    });
    if (!sets) return false;
    const auto copy = [&, turn = std::size_t{0}]() mutable {
      Stream& stream = *bench_.stream;
      Buffers& set = (*sets)[turn++ % sets->size()];
      switch (direction) {
        case CopyDirection::host_to_device:
          return bench_.device->copy_to_device(set.from.data(), set.host.data(), bytes, stream);
        case CopyDirection::device_to_host:
          return bench_.device->copy_to_host(set.host.data(), set.from.data(), bytes, stream);
        case CopyDirection::device_to_device:
          return bench_.device->copy(set.to.data(), set.from.data(), bytes, stream);
      }
    };
    const Sampled sampled = sample_call(bench_, copy, limits_);
    const double rate = 2 * static_cast<double>(bytes) / sampled.time.median_seconds;
    if (impossible(what, rate, ceilings_.bytes_per_second, "GB/s", sampled)) return true;
    profile().copies.push_back({direction, bytes, sampled.time});
    measured(sampled, what);
    return true;
  }

  void measure_kernel(const KernelPoint& point) {
    const std::string what =
        fmt::format("{}, {} tokens{}", to_string(point.shape), point.tokens,
                    point.length > 0 ? fmt::format(" in sequences of {}", point.length) : "");
    const char* type = to_string(bench_.type);
    const bool stands = std::ranges::any_of(profile().kernels, [&](const KernelSample& sample) {
      return sample.shape == point.shape && sample.tokens == point.tokens &&
             sample.length == point.length && sample.data_type == type;
    });
    if (!wanted(stands)) return;
    const KernelWork work =
        kernel_work(point.shape, point.tokens, point.length, size_of(bench_.type));
    const double longest = settings_.quick ? kLongestQuickCallSeconds : kLongestCallSeconds;
    // The ceiling is above what is reached, so the call takes longer still.
    if (work.flops / ceilings_.flops > longest) {
      ++too_long_;
      return;
    }
    const auto measuring = make_everywhere<KernelCase>(what, [&] {
      return std::make_unique<KernelCase>(bench_, point, argument_sets(work.bytes));
    });
    if (!measuring) return;
    const std::int64_t allocated = measuring->allocated_bytes();
    const Sampled sampled = sample_call(
        bench_, [&] { measuring->launch(); }, limits_);
    const double seconds = sampled.time.median_seconds;
    if (impossible(what, work.flops / seconds, ceilings_.flops, "GFLOP/s", sampled) ||
        impossible(what, static_cast<double>(work.bytes) / seconds, ceilings_.bytes_per_second,
                   "GB/s of memory", sampled)) {
      return;
    }
    profile().kernels.push_back(
        {point.shape, type, point.tokens, point.length, sampled.time, allocated});
    profile().memory.workspace_bytes = std::max(profile().memory.workspace_bytes, allocated);
    measured(sampled, what);
  }

  void finish() {
    look(reference_.rates());
    note(
        fmt::format("{} points measured; the reference product ran at {:.1f} to {:.1f} GFLOP/s a "
                    "rank meanwhile",
                    measured_, slowest_look_ * 1e-9, fastest_look_ * 1e-9));
    const std::vector<double> elapsed = gather(bench_, {elapsed_.wall, elapsed_.counted});
    double waiting = 0;
    for (std::size_t at = 0; at < elapsed.size(); at += 2) {
      if (elapsed[at] > 0) waiting = std::max(waiting, 1 - elapsed[at + 1] / elapsed[at]);
    }
    if (bench_.clock == processor_seconds) {
      note(
          "kernels and copies by processor time of the rank's thread, messages by the wall's "
          "clock");
    }
    if (waiting > kWaitingShare) {
      note(fmt::format(
          "warning: a rank waited for its core {:.0f} % of the time: other programs run, "
          "or ranks share cores; times of messages hold such waiting, those of kernels "
          "do not",
          100 * waiting));
    }
    if (slowest_look_ < (1 - kLargeDrift) * fastest_look_) {
      note(
          fmt::format("warning: clocks or the load of the machine changed by {:.0f} % while it was "
                      "measured, or its ranks differ (profile compare shows them)",
                      100 * (fastest_look_ / slowest_look_ - 1)));
    }
    if (wide_ > 0) {
      note(
          fmt::format("warning: {} of {} points spread by more than {:.0f} % of their median from "
                      "the 10 to the 90 % quantile, most ({:.0f} %) {}",
                      wide_, measured_, 100 * kLargeSpread, 100 * widest_, widest_what_));
    }
    if (unsteady_ > 0 || outliers_ > 0) {
      note(
          fmt::format("{} points whose median is not known to {:.0f} %; {} outliers among their "
                      "repeats",
                      unsteady_, 100 * limits_.relative_interval, outliers_));
    }
    if (too_long_ > 0) {
      note(fmt::format("{} points left out: one call takes over {} s", too_long_,
                       settings_.quick ? kLongestQuickCallSeconds : kLongestCallSeconds));
    }
    if (left_out_ > 0) {
      note(fmt::format(
          "stopped after {:.0f} s: {} of {} points were not measured (--resume goes on)",
          settings_.most_seconds, left_out_, total_));
    }
  }

  Elapsed elapsed_;
  const Bench bench_;
  const ProfilerSettings& settings_;
  const OperatorProfile& standing_;
  const ProfilerListener& listener_;
  SamplingLimits limits_;
  std::vector<std::string> hosts_;
  std::vector<GroupShape> shapes_;
  Reference reference_;
  Ceilings ceilings_;
  ProfilerResult result_;
  double start_ = wall_seconds();
  double saved_ = wall_seconds();
  double last_look_ = wall_seconds();
  double slowest_look_ = HUGE_VAL;
  double fastest_look_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
  int measured_ = 0;
  int left_out_ = 0;
  int too_long_ = 0;
  int unsteady_ = 0;
  int outliers_ = 0;
  int wide_ = 0;
  double widest_ = 0;
  std::string widest_what_;
};

}  // namespace

ProfilerResult profile_machine(const Bench& bench, const ProfilerSettings& settings,
                               const OperatorProfile& standing, const ProfilerListener& listener) {
  return Profiling(bench, settings, standing, listener).run();
}

void check_resumable(const OperatorProfile& standing, const MachineDescription& machine,
                     DataType type, const std::string& where) {
  const MachineDescription& was = standing.machine;
  const auto refuse = [&](const char* field, const auto& value, const auto& expected) {
    throw InputError("{}: field 'machine.{}' is {}, this job has {}: measure into another file",
                     where, field, value, expected);
  };
  if (was.backend != machine.backend) refuse("backend", was.backend, machine.backend);
  if (was.processor != machine.processor) refuse("processor", was.processor, machine.processor);
  if (was.ranks != machine.ranks) refuse("ranks", was.ranks, machine.ranks);
  if (was.nodes != machine.nodes) refuse("nodes", was.nodes, machine.nodes);
  if (was.threads_per_rank != machine.threads_per_rank) {
    refuse("threads_per_rank", was.threads_per_rank, machine.threads_per_rank);
  }
  for (const KernelSample& sample : standing.kernels) {
    if (sample.data_type != to_string(type)) {
      throw InputError("{}: its kernels were measured in {}, this job measures {}", where,
                       sample.data_type, to_string(type));
    }
  }
}

}  // namespace hydraulis
