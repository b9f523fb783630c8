// `hydraulis profile`, `profile import`, `profile show`, `profile compare`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "costmodel/nccl_tests.h"
#include "costmodel/profiler/machine.h"
#include "costmodel/profiler/profiler.h"
#include "kernels/cuda/compute.h"
#include "report/profile_compare.h"
#include "report/profile_plot.h"
#include "report/profile_show.h"
#include "runtime/agreement.h"
#include "runtime/backend/run_backend.h"

namespace hydraulis {
namespace {

constexpr std::uint64_t kMostRanks = 1'000'000;
constexpr std::uint64_t kMostThreads = 1024;
constexpr std::uint64_t kMostTokens = std::uint64_t{1} << 24;
constexpr std::int64_t kLeastMessage = 1024;
constexpr std::int64_t kMostMessage = std::int64_t{1} << 40;
constexpr double kQuickSeconds = 100;
/// Of free memory that the ranks of a node take together: comparing results takes as much again.
constexpr double kMemoryShare = 0.4;
/// A LLaMA of a size that suits a first look, for who names no model.
constexpr const char* kDefaultModel = "default";

ModelSpec default_model() {
  ModelSpec model;
  model.name = kDefaultModel;
  model.layers = 8;
  model.hidden = 512;
  model.ffn_hidden = 1376;
  model.heads = 8;
  model.kv_heads = 8;
  model.head_dim = 64;
  model.vocab = 8192;
  return model;
}

/// "64M": bytes with a binary unit. What is wrong is CLI11's to say.
std::int64_t parse_bytes(const std::string& text) {
  std::int64_t value = 0;
  std::size_t at = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9' && value < kMostMessage; ++at) {
    value = 10 * value + (text[at] - '0');
  }
  const std::string unit = text.substr(at);
  const std::size_t power = unit.empty() ? 0 : std::string_view("KMGT").find(unit[0]) + 1;
  const bool known = unit.empty() || (unit.size() == 1 && power > 0);
  if (known && at > 0) {
    for (std::size_t i = 0; i < power && value < kMostMessage; ++i) value *= 1024;
    if (value >= kLeastMessage && value <= kMostMessage) return value;
  }
  throw CLI::ValidationError(
      "--max-bytes", fmt::format("'{}' is not a size from 1K to 1T, such as 65536 or 64M", text));
}

struct MeasureOptions {
  std::string output;
  std::vector<std::string> models;
  std::vector<int> tensor_parallel;
  std::uint64_t max_tokens = 0;
  std::int64_t max_bytes = 0;
  std::uint64_t ranks = 0;
  std::uint64_t threads = 0;
  double memory_gib = 0;
  double most_seconds = 0;
  std::string precision;
  std::string backend = "cpu";
  std::string device;
  bool quick = false;
  bool resume = false;
  bool json = false;
};

void say(const std::string& text) {
  std::fputs(fmt::format("hydraulis: {}\n", text).c_str(), stderr);
}

ProfilerSettings profiler_settings(const MeasureOptions& options) {
  ProfilerSettings settings;
  settings.name = std::filesystem::path(options.output).stem().string();
  for (const std::string& name : options.models) settings.models.push_back(load_model(name));
  if (settings.models.empty()) settings.models.push_back(default_model());
  if (options.backend == "cuda") {
    if (!options.precision.empty()) {
      throw InputError("--precision: {}, and GPUs compute in bf16", options.precision);
    }
    for (const ModelSpec& model : settings.models) {
      if (std::ranges::find(cuda::kHeadSizes, model.head_dim) == cuda::kHeadSizes.end()) {
        throw InputError("--model: {} has heads of {}, and the CUDA backend computes heads of {}",
                         model.name, model.head_dim, fmt::join(cuda::kHeadSizes, ", "));
      }
    }
  }
  settings.tensor_parallel = options.tensor_parallel;
  settings.quick = options.quick;
  settings.backend = options.backend;
  settings.max_tokens = options.quick ? 2048 : 4096;
  if (options.max_tokens > 0) settings.max_tokens = static_cast<std::int64_t>(options.max_tokens);
  settings.max_bytes = std::int64_t{options.quick ? 16 : 64} << 20;
  if (options.max_bytes > 0) settings.max_bytes = options.max_bytes;
  settings.most_seconds = options.quick ? kQuickSeconds : 0;
  if (options.most_seconds > 0) settings.most_seconds = options.most_seconds;
  return settings;
}

/// A process of this job with a device that takes no more than its share of the node's memory.
struct Job {
  CpuProcess process;
  std::unique_ptr<RunBackend> gpu;  // with --backend cuda
  std::unique_ptr<Compute> compute;
  std::unique_ptr<Stream> stream;
  Bench bench;
  int ranks_per_node = 1;
};

void set_device(Job& job, const MeasureOptions& options, std::int64_t limit) {
  job.process = start_cpu_process(static_cast<int>(options.threads), limit);
  job.compute = make_cpu_compute(*job.process.device);
  job.stream = job.process.device->make_stream();
  job.bench = {job.process.device.get(), job.compute.get(), job.process.world.get(),
               job.stream.get(), options.precision == "f64" ? DataType::f64 : DataType::f32};
  // Threads of one rank may wait for one another, which is their kernels' time too.
  if (job.process.device->threads() == 1) job.bench.clock = processor_seconds;
}

/// The GPU of this process.
void start_gpu_job(Job& job, const MeasureOptions& options) {
  RunConfig config;
  config.file = "--backend";
  config.device = RunDevice::cuda;
  config.type = DataType::bf16;
  check_backend(config);
  job.process = start_host_process(static_cast<int>(options.threads));
  const auto limit = static_cast<std::int64_t>(options.memory_gib * 1024 * 1024 * 1024);
  together(*job.process.world,
           [&] { job.gpu = std::make_unique<RunBackend>(job.process, config, limit); });
  const Backend& backend = job.gpu->backend();
  job.bench = {backend.device, backend.compute, backend.world, backend.stream, backend.type};
  const std::vector<std::string> hosts = hosts_of_ranks(job.bench);
  job.ranks_per_node = static_cast<int>(
      std::ranges::count(hosts, hosts[static_cast<std::size_t>(job.bench.rank())]));
}

Job start_job(const MeasureOptions& options) {
  Job job;
  if (options.backend == "cuda") {
    start_gpu_job(job, options);
    return job;
  }
  set_device(job, options, 0);
  const std::vector<std::string> hosts = hosts_of_ranks(job.bench);
  job.ranks_per_node = static_cast<int>(
      std::ranges::count(hosts, hosts[static_cast<std::size_t>(job.bench.rank())]));
  const double share =
      kMemoryShare * static_cast<double>(available_memory_bytes()) / job.ranks_per_node;
  const double limit = options.memory_gib > 0 ? options.memory_gib * 1024 * 1024 * 1024 : share;
  job.stream.reset();
  job.compute.reset();
  set_device(job, options, static_cast<std::int64_t>(limit));
  return job;
}

void print_summary(const MeasureOptions& options, const OperatorProfile& profile) {
  const Report report = profile_report(profile, options.output);
  write_stdout(options.json ? report.json.dump(2) + "\n" : to_text(report));
}

/// What every rank does once the job stands.
void measure_on_ranks(const MeasureOptions& options, const ProfilerSettings& settings, Job& job) {
  Communicator& world = *job.process.world;
  const bool is_first = world.rank() == 0;
  OperatorProfile standing;
  together(world, [&] {
    if (options.ranks > 0 && static_cast<int>(options.ranks) != world.size()) {
      throw InputError(
          "--ranks: {} asked for, this job has {}; start it with mpirun -n {} hydraulis profile",
          options.ranks, world.size(), options.ranks);
    }
  });
  MachineDescription machine =
      describe_machine(job.bench, hosts_of_ranks(job.bench), settings.backend);
  together(world, [&] {
    if (!is_first) return;
    const AtomicFile writable(options.output);  // else it would show after an hour
    if (!options.resume || !std::filesystem::exists(options.output)) return;
    standing = read_operator_profile(options.output);
    check_resumable(standing, machine, job.bench.type, options.output);
  });
  if (is_first) {
    for (const std::string& line : machine_remarks(machine, job.ranks_per_node)) say(line);
  }
  ProfilerListener listener;
  std::unique_ptr<Progress> bar;
  listener.progress = [&](std::uint64_t done, std::uint64_t total) {
    if (!bar) bar = std::make_unique<Progress>("measuring", total, "points");
    bar->update(done);
  };
  const auto write = [&](OperatorProfile profile) {
    if (!options.device.empty()) profile.machine.device = options.device;
    write_operator_profile(profile, options.output);
    return profile;
  };
  listener.save = [&](const OperatorProfile& so_far) { write(so_far); };
  ProfilerResult result = profile_machine(job.bench, settings, standing, listener);
  bar.reset();
  together(world, [&] {
    if (is_first) print_summary(options, write(std::move(result.profile)));
  });
  together(world, [&] {
    if (!is_first || !result.data_check_failed) return;
    throw Error(
        ExitCode::internal,
        fmt::format("{}: some collectives gave wrong data; their sizes are left out and named",
                    options.output));
  });
}

void measure(const MeasureOptions& options) {
  if (options.output.empty()) throw InputError("profile: --output is required");
  std::optional<Error> unreadable;
  ProfilerSettings settings;
  try {
    settings = profiler_settings(options);
  } catch (const Error& error) {
    unreadable = error;
  }
  Job job = start_job(options);
  try {
    together(*job.process.world, [&] {
      if (unreadable) throw Error(*unreadable);
    });
    measure_on_ranks(options, settings, job);
  } catch (const AgreedError&) {
    throw;
  } catch (const Error& error) {
    // The other ranks know nothing of it and would wait.
    say(fmt::format("error: {}", error.what()));
    job.process.world->abort(static_cast<int>(error.code()));
  } catch (const std::exception& error) {
    say(fmt::format("error: rank {}: {}", job.process.world->rank(), error.what()));
    job.process.world->abort(static_cast<int>(ExitCode::internal));
  }
}

struct ImportOptions {
  CommonOptions common;
  std::vector<std::string> files;
  std::string into;
  std::string collective;
  std::string device;
  std::uint64_t ranks = 0;
  std::uint64_t nodes = 0;
  double ceiling_gigabytes_per_second = 0;
};

void import(const ImportOptions& options) {
  const std::string target = options.common.output.empty() ? options.into : options.common.output;
  if (target.empty()) throw InputError("profile import: give --output or --into");
  NcclTestsOptions how;
  how.ranks = static_cast<int>(options.ranks);
  how.nodes = static_cast<int>(options.nodes);
  if (!options.collective.empty()) {
    how.operation = parse_collective(options.collective, "--collective");
  }
  if (options.ceiling_gigabytes_per_second > 0) {
    how.ceiling_bytes_per_second = options.ceiling_gigabytes_per_second * 1e9;
  }
  std::vector<NcclTestsResult> results;
  for (const std::string& file : options.files) results.push_back(read_nccl_tests(file, how));
  OperatorProfile profile;
  if (!options.into.empty()) profile = read_operator_profile(options.into);
  bool failed = false;
  for (std::size_t i = 0; i < results.size(); ++i) {
    add_imported(results[i], options.files[i], profile);
    failed = failed || results[i].data_check_failed;
  }
  if (!options.device.empty()) profile.machine.device = options.device;
  if (profile.name.empty()) profile.name = std::filesystem::path(target).stem().string();
  write_operator_profile(profile, target);
  emit(options.common, profile_report(profile, target), false);
  if (failed) {
    throw InputError("{}: some sizes failed their data check; they are left out of {} and named",
                     fmt::join(options.files, ", "), target);
  }
}

struct ShowOptions {
  CommonOptions common;
  std::string file;
  std::string plot;
};

void show(const ShowOptions& options) {
  const OperatorProfile profile = read_operator_profile(options.file);
  const std::string plots = profile_plots(profile, options.file, options.plot);
  const Report report = profile_report(profile, options.file);
  refuse_same_file({{"-o", options.common.output}}, {{"FILE", options.file}});
  const bool for_people = !options.common.json && !options.common.csv;
  if (!for_people || !options.common.output.empty()) return emit(options.common, report);
  write_stdout(options.plot.empty() ? to_text(report) + "\n" + plots : plots);
}

struct CompareOptions {
  CommonOptions common;
  std::string a;
  std::string b;
};

void compare(const CompareOptions& options) {
  refuse_same_file({{"-o", options.common.output}}, {{"A", options.a}, {"B", options.b}});
  const OperatorProfile a = read_operator_profile(options.a);
  emit(options.common,
       options.b.empty()
           ? compare_nodes(a, options.a)
           : compare_profiles(a, options.a, read_operator_profile(options.b), options.b));
}

}  // namespace

void add_profile_commands(CLI::App& app) {
  auto options = std::make_shared<MeasureOptions>();
  CLI::App* command =
      app.add_subcommand("profile", "measure this machine: kernels, collectives, copies");
  command->require_subcommand(0, 1);
  command->add_option("-o,--output", options->output, "profile to write (HDF5)")
      ->check(not_empty());
  command
      ->add_option("--model", options->models,
                   "presets or Hugging Face config.json whose shapes are measured [a LLaMA of "
                   "hidden size 512]")
      ->delimiter(',')
      ->check(not_empty());
  command
      ->add_option("--tp", options->tensor_parallel,
                   "tensor-parallel degrees whose shapes are measured [1, 2, 4, ... ranks]")
      ->delimiter(',')
      ->check(whole_number(1, kMostRanks));
  command
      ->add_option("--max-tokens", options->max_tokens,
                   "of a micro-batch [4096, with --quick 2048]")
      ->check(whole_number(1, kMostTokens));
  command->add_option_function<std::string>(
      "--max-bytes", [options](const std::string& text) { options->max_bytes = parse_bytes(text); },
      "largest message and copy, as 65536 or 64M [64M, with --quick 16M]");
  command->add_flag("--quick", options->quick, "fewer sizes and repeats: under two minutes");
  command->add_flag("--resume", options->resume, "go on with what the output holds already");
  command->add_option("--ranks", options->ranks, "ranks that the job must have")
      ->check(whole_number(1, kMostRanks));
  command->add_option("--threads", options->threads, "threads of a rank's kernels [its cores]")
      ->check(whole_number(1, kMostThreads));
  command
      ->add_option("--memory-limit", options->memory_gib,
                   "GiB that a rank may take [its share of two fifths of what is free]")
      ->check(finite_number(0.001, 1e6));
  command
      ->add_option("--time-limit", options->most_seconds,
                   "seconds after which the rest is left out [none, with --quick 100]")
      ->check(finite_number(0.001, 1e9));
  command->add_option("--backend", options->backend, "cpu, or cuda: a GPU for each rank, in bf16")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--precision", options->precision, "f32 or f64, on the CPU [f32]")
      ->check(CLI::IsMember({"f32", "f64"}));
  command
      ->add_option("--device", options->device,
                   "name of the device, as clusters call it [the backend]")
      ->check(not_empty());
  command->add_flag("--json", options->json, "print JSON");
  command->footer(
      "Ranks are started by mpirun or srun; all of them measure at once, as they train. More\n"
      "ranks than cores: --oversubscribe. As root: --allow-run-as-root. A container needs room\n"
      "in /dev/shm: docker run --shm-size=1g.\n"
      "Example:\n  mpirun -n 2 hydraulis profile --quick --model config.json -o machine.h5");
  command->callback([command, options] {
    if (command->get_subcommands().empty()) measure(*options);
  });

  auto importing = std::make_shared<ImportOptions>();
  CLI::App* from = command->add_subcommand("import", "the output of nccl-tests as a profile");
  from->add_option("FILE", importing->files, "what its *_perf programs printed")
      ->required()
      ->check(not_empty());
  from->add_option("--into", importing->into, "profile whose collectives are replaced")
      ->check(not_empty());
  from->add_option("--collective", importing->collective,
                   "which test it is, where the output does not say")
      ->check(CLI::IsMember(
          {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "send"}));
  from->add_option("--ranks", importing->ranks, "ranks that must have taken part")
      ->check(whole_number(1, kMostRanks));
  from->add_option("--nodes", importing->nodes, "nodes they were on [its hosts]")
      ->check(whole_number(1, kMostRanks));
  from->add_option("--ceiling", importing->ceiling_gigabytes_per_second,
                   "GB/s on the bus above which a point is impossible [2000]")
      ->check(finite_number(0.001, 1e9));
  from->add_option("--device", importing->device, "name of the device, as clusters call it")
      ->check(not_empty());
  add_common_options(*from, importing->common, Has::format | Has::output);
  from->footer("Example:\n  hydraulis profile import all_reduce.txt all_gather.txt -o cluster.h5");
  from->callback([importing] { import(*importing); });

  auto showing = std::make_shared<ShowOptions>();
  CLI::App* print = command->add_subcommand("show", "what a profile holds, with its fits drawn");
  print->add_option("FILE", showing->file, "profile")->required()->check(not_empty());
  print
      ->add_option("--plot", showing->plot,
                   "draw what has this in its name, such as all_reduce [three telling ones]")
      ->check(not_empty());
  add_common_options(*print, showing->common, Has::format | Has::output);
  print->footer("Example:\n  hydraulis profile show machine.h5 --plot all_reduce");
  print->callback([showing] { show(*showing); });

  auto comparing = std::make_shared<CompareOptions>();
  CLI::App* both = command->add_subcommand(
      "compare", "two profiles, or the nodes of one, side by side: the slow one found");
  both->add_option("A", comparing->a, "profile")->required()->check(not_empty());
  both->add_option("B", comparing->b, "profile; without it the nodes of A")->check(not_empty());
  add_common_options(*both, comparing->common, Has::format | Has::output);
  both->footer("Example:\n  hydraulis profile compare last_month.h5 today.h5");
  both->callback([comparing] { compare(*comparing); });
}

}  // namespace hydraulis
