#include "kernels/cpu/process.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>

#include "base/error.h"
#include "kernels/communicator.h"
#include "kernels/cpu/communicator.h"
#include "kernels/cpu/device.h"
#include "kernels/rendezvous/communicator.h"
#include "kernels/rendezvous/slurm_step.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace hydraulis {

namespace cpu {

namespace {

/// True when mpirun, or srun with one of MPI's process managers, started this process.
bool launched() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

/// A task of a step of several that srun started without MPI would take itself for the whole job.
[[noreturn]] void refuse_lonely_step(int tasks) {
  throw InputError(
      "srun started {} tasks without MPI, so they cannot find one another: start them with srun "
      "--mpi=pmix (srun --mpi=list shows what there is)",
      tasks);
}

cpu_set_t own_mask() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) {
    // More cores than a mask has room for: as many as it has.
    for (int core = 0; core < CPU_SETSIZE; ++core) CPU_SET(core, &mask);
  }
  return mask;
}

/// MPI's part of this process, ended with it.
class Mpi {
 public:
  Mpi() : job_(std::make_shared<Job>()), world_(std::make_shared<Group>()) {
    start();
    world_->job = job_;
    world_->rank = job_->rank;
    world_->members.resize(static_cast<std::size_t>(job_->size));
    std::iota(world_->members.begin(), world_->members.end(), 0);
  }

  ~Mpi() {
    int finalized = 0;
    if (ends_mpi_) MPI_Finalized(&finalized);
    if (!ends_mpi_ || finalized != 0) return;
    if (job_->failed) {
      // Finalizing waits for all ranks; after a failure they may never come.
      std::fflush(nullptr);
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::seconds(5));
        _exit(static_cast<int>(ExitCode::internal));
      }).detach();
    }
#ifdef __SANITIZE_ADDRESS__
    // Finalizing unloads MPI's plugins, after which what they leak has no name to be exempt by.
    __lsan_do_leak_check();
#endif
    MPI_Finalize();
  }
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;

  const std::shared_ptr<Group>& world() const { return world_; }
  int threads() const { return fair_threads(masks_, place_); }
  int node_rank() const { return static_cast<int>(place_); }
  int node_ranks() const { return static_cast<int>(masks_.size()); }
  /// Tasks of the step that this process belongs to, where MPI knows of this one alone; else 1.
  int lonely_tasks() const { return lonely_tasks_; }

 private:
  void start() {
    job_->timeout_seconds = timeout_from_environment();
    // Under mpirun, which srun may have started, MPI alone knows how many there are.
    const bool mpirun = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
    if (!launched()) {
      lonely_tasks_ = slurm_tasks();
      masks_ = {own_mask()};
      return;
    }
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized == 0) {
      int provided = 0;
#ifdef __SANITIZE_ADDRESS__
      // Plugins that were tried and unloaded again leak too, without a name to be exempt by.
      const __lsan::ScopedDisabler not_ours;
#endif
      MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
      ends_mpi_ = true;
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &job_->world);
    MPI_Comm_set_errhandler(job_->world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(job_->world, &job_->rank);
    MPI_Comm_size(job_->world, &job_->size);
    if (job_->size == 1 && !mpirun) lonely_tasks_ = slurm_tasks();
    void* attribute = nullptr;
    int found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &attribute, &found);
    const int greatest_tag = found != 0 ? *static_cast<int*>(attribute) : 32767;
    job_->contexts = greatest_tag >> kLaneBits;

    MPI_Comm node = MPI_COMM_NULL;
    MPI_Comm_split_type(job_->world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    int neighbours = 1;
    int place = 0;
    MPI_Comm_size(node, &neighbours);
    MPI_Comm_rank(node, &place);
    place_ = static_cast<std::size_t>(place);
    masks_.resize(static_cast<std::size_t>(neighbours));
    cpu_set_t mine = own_mask();
    MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, masks_.data(), sizeof(mine), MPI_BYTE, node);
    MPI_Comm_free(&node);
  }

  std::shared_ptr<Job> job_;
  std::shared_ptr<Group> world_;
  std::vector<cpu_set_t> masks_;  // of the processes of this node
  std::size_t place_ = 0;
  int lonely_tasks_ = 1;
  bool ends_mpi_ = false;
};

const Mpi& this_mpi() {
  static const Mpi mpi;
  return mpi;
}

/// What processes tell one another of their place.
struct Place {
  char node[64] = {};
  cpu_set_t mask{};
};
static_assert(sizeof(Place) % 4 == 0);

/// This process's place among those that srun started without MPI.
struct Rendezvous {
  Rendezvous(const SlurmStep& step, double seconds)
      : connection(std::make_shared<rendezvous::Connection>(step, seconds)),
        local_rank(step.local_rank) {
    const auto world = rendezvous::make_communicator(connection);
    Place mine;
    mine.mask = own_mask();
    rendezvous::node_name().copy(mine.node, sizeof mine.node - 1);
    std::vector<Place> all(static_cast<std::size_t>(world->size()));
    CpuStream stream;
    world->all_gather(&mine, all.data(), sizeof(Place) / 4, DataType::f32, stream);
    std::size_t own = 0;
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (std::strcmp(all[r].node, mine.node) != 0) continue;
      if (static_cast<int>(r) == world->rank()) own = masks.size();
      masks.push_back(all[r].mask);
    }
    threads = fair_threads(masks, own);
  }
  std::shared_ptr<rendezvous::Connection> connection;
  int local_rank;
  std::vector<cpu_set_t> masks;  // of the processes of this node
  int threads = 1;
};

}  // namespace

int fair_threads(const std::vector<cpu_set_t>& masks, std::size_t own) {
  double cores = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &masks[own]) == 0) continue;
    int sharers = 0;
    for (const auto& mask : masks) sharers += CPU_ISSET(core, &mask) != 0 ? 1 : 0;
    cores += 1.0 / sharers;
  }
  // 6 cores among 3 must give 2, whatever thirds add up to.
  return std::max(1, static_cast<int>(std::floor(cores + 1e-6)));
}

double timeout_from_environment() {
  const char* text = std::getenv("HYDRAULIS_TIMEOUT_SECONDS");
  if (text == nullptr) return 60;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (end == text || *end != '\0' || !std::isfinite(seconds) || seconds <= 0) {
    throw InputError("HYDRAULIS_TIMEOUT_SECONDS: expected a positive number of seconds, not \"{}\"",
                     text);
  }
  return seconds;
}

}  // namespace cpu

CpuProcess start_cpu_process(int threads, std::int64_t memory_limit_bytes) {
  const cpu::Mpi& mpi = cpu::this_mpi();
  if (mpi.lonely_tasks() > 1) cpu::refuse_lonely_step(mpi.lonely_tasks());
  CpuProcess process;
  process.device = cpu::make_device(threads > 0 ? threads : mpi.threads(), memory_limit_bytes);
  process.world = cpu::make_communicator(mpi.world());
  process.node_rank = mpi.node_rank();
  process.node_ranks = mpi.node_ranks();
  return process;
}

CpuProcess start_host_process(int threads) {
  if (cpu::this_mpi().lonely_tasks() < 2) return start_cpu_process(threads);
  static const cpu::Rendezvous job(slurm_step().value(), cpu::timeout_from_environment());
  CpuProcess process;
  process.device = cpu::make_device(threads > 0 ? threads : job.threads, 0);
  process.world = rendezvous::make_communicator(job.connection);
  process.node_rank = job.local_rank;
  process.node_ranks = static_cast<int>(job.masks.size());
  return process;
}

}  // namespace hydraulis
