#include "kernels/rendezvous/slurm_step.h"

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr int kMostTasks = 1 << 20;
constexpr int kMostPort = 65535;
/// Below the ports that systems hand out by themselves (from 32768 on).
constexpr std::uint32_t kFirstPort = 20'000;
constexpr std::uint32_t kPorts = 12'000;

std::string text_of(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? text : "";
}

std::string required(const char* name) {
  std::string text = text_of(name);
  if (text.empty()) {
    throw InputError("{}: is not set, though srun started this process as one task of several",
                     name);
  }
  return text;
}

int number(const char* name, const std::string& text, int least, int most) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || at != end || value < least || value > most) {
    throw InputError("{}: \"{}\", expected a whole number from {} to {}", name, text, least, most);
  }
  return value;
}

std::uint32_t hash(std::string_view text) {  // FNV-1a
  std::uint32_t value = 2166136261u;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 16777619u;
  return value;
}

}  // namespace

std::string first_host(const std::string& list) {
  const std::size_t bracket = list.find_first_of("[,");
  if (bracket == std::string::npos || list[bracket] == ',') return list.substr(0, bracket);
  const std::size_t digits = bracket + 1;
  const std::size_t end = list.find_first_not_of("0123456789", digits);
  const std::size_t close = list.find(']', digits);
  if (end == digits || end == std::string::npos || close == std::string::npos) return {};
  std::string host = list.substr(0, bracket) + list.substr(digits, end - digits);
  // What stands behind the brackets belongs to the name; several brackets are several dimensions.
  const std::string rest = list.substr(close + 1);
  if (rest.empty() || rest[0] == ',') return host;
  const std::string behind = first_host(rest);
  return behind.empty() ? std::string() : host + behind;
}

int slurm_tasks() {
  const std::string tasks = text_of("SLURM_STEP_NUM_TASKS");
  if (!tasks.empty()) return number("SLURM_STEP_NUM_TASKS", tasks, 1, kMostTasks);
  // Batch scripts see SLURM_NTASKS too, which then is no number of processes that were started.
  if (text_of("SLURM_STEP_NODELIST").empty() || text_of("SLURM_NTASKS").empty()) return 1;
  return number("SLURM_NTASKS", text_of("SLURM_NTASKS"), 1, kMostTasks);
}

std::optional<SlurmStep> slurm_step() {
  SlurmStep step;
  step.size = slurm_tasks();
  if (step.size < 2) return std::nullopt;
  step.rank = number("SLURM_PROCID", required("SLURM_PROCID"), 0, step.size - 1);
  step.local_rank = number("SLURM_LOCALID", required("SLURM_LOCALID"), 0, step.size - 1);
  step.run = required("SLURM_JOB_ID");
  if (const std::string id = text_of("SLURM_STEP_ID"); !id.empty()) step.run += "." + id;
  step.host = text_of("MASTER_ADDR");
  if (step.host.empty()) {
    const std::string list = required("SLURM_STEP_NODELIST");
    step.host = first_host(list);
    if (step.host.empty()) {
      throw InputError("SLURM_STEP_NODELIST: \"{}\", expected a list of hosts as Slurm writes it",
                       list);
    }
  }
  const std::string port = text_of("MASTER_PORT");
  step.port = port.empty() ? static_cast<int>(kFirstPort + hash(step.run) % kPorts)
                           : number("MASTER_PORT", port, 1, kMostPort);
  return step;
}

}  // namespace hydraulis
