#include "costmodel/profiler/machine.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <hdf5.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <thread>

#include "costmodel/profiler/group_shapes.h"

namespace hydraulis {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kLittleSharedMemory = 0.25 * kGiB;

/// The value of the first line "key : value" of a /proc file.
std::string proc_field(const char* file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

int usable_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) return CPU_COUNT(&mask);
  return static_cast<int>(std::thread::hardware_concurrency());
}

std::string host_name() {
  utsname system{};
  return uname(&system) == 0 ? system.nodename : "";
}

std::string hdf5_version() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

/// Free bytes of /dev/shm, which MPI and NCCL pass messages through; −1: there is none.
double shared_memory_bytes() {
  struct statvfs status {};
  if (statvfs("/dev/shm", &status) != 0) return -1;
  return static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize);
}

}  // namespace

std::int64_t available_memory_bytes() {
  const std::string text = proc_field("/proc/meminfo", "MemAvailable");
  return text.empty() ? 0 : std::strtoll(text.c_str(), nullptr, 10) * 1024;
}

std::vector<std::string> hosts_of_ranks(const Bench& bench) {
  return gather_texts(bench, host_name());
}

MachineDescription describe_machine(const Bench& bench, const std::vector<std::string>& hosts,
                                    const std::string& backend) {
  MachineDescription machine;
  machine.device = backend;
  machine.backend = backend;
  machine.processor =
      backend == "cpu" ? proc_field("/proc/cpuinfo", "model name") : bench.device->name();
  machine.host = host_name();
  machine.cores = usable_cores();
  machine.threads_per_rank = bench.device->threads();
  machine.ranks = bench.ranks();
  machine.nodes = count_nodes(hosts);
  const DeviceMemory memory = bench.device->memory();
  machine.memory_bytes = memory.limit > 0 ? static_cast<double>(memory.limit)
                                          : static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                                                static_cast<double>(sysconf(_SC_PAGESIZE));
  machine.clock_hertz = std::strtod(proc_field("/proc/cpuinfo", "cpu MHz").c_str(), nullptr) * 1e6;
  machine.date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  utsname system{};
  if (uname(&system) == 0) machine.software.emplace_back(system.sysname, system.release);
  machine.software.emplace_back("compiler", __VERSION__);
  machine.software.emplace_back("HDF5", hdf5_version());
  return machine;
}

std::vector<std::string> machine_remarks(const MachineDescription& machine, int ranks_per_node) {
  const double shared = shared_memory_bytes();
  std::vector<std::string> lines;
  lines.push_back(fmt::format(
      "found {} rank{} on {} node{}, {} core{} and {} thread{} a rank, {:.1f} GiB a rank{}",
      machine.ranks, machine.ranks == 1 ? "" : "s", machine.nodes, machine.nodes == 1 ? "" : "s",
      machine.cores, machine.cores == 1 ? "" : "s", machine.threads_per_rank,
      machine.threads_per_rank == 1 ? "" : "s", machine.memory_bytes / kGiB,
      shared < 0 ? std::string(", no /dev/shm")
                 : fmt::format(", /dev/shm with {:.1f} GiB free", shared / kGiB)));
  if (machine.backend == "cpu" && ranks_per_node * machine.threads_per_rank > machine.cores) {
    lines.push_back(fmt::format(
        "{} ranks of {} threads share {} cores of a node: the times are those of ranks that share "
        "cores; start at most {} (mpirun -n {}) for the times of a core of its own",
        ranks_per_node, machine.threads_per_rank, machine.cores,
        std::max(1, machine.cores / machine.threads_per_rank),
        std::max(1, machine.cores / machine.threads_per_rank)));
  }
  if (ranks_per_node > 1 && shared >= 0 && shared < kLittleSharedMemory) {
    lines.push_back(fmt::format(
        "/dev/shm has {:.0f} MiB free and messages between ranks go through it; give the container "
        "more (docker run --shm-size=1g)",
        shared / kGiB * 1024));
  }
  if (machine.ranks == 1) {
    lines.push_back(
        "one rank: collectives are not measured; start several with mpirun -n RANKS hydraulis "
        "profile ...");
  }
  return lines;
}

}  // namespace hydraulis
