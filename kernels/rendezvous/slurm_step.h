#pragma once

#include <optional>
#include <string>

namespace hydraulis {

/// A task of a Slurm step, as srun describes it in the environment.
struct SlurmStep {
  int rank = 0;        ///< SLURM_PROCID
  int size = 1;        ///< SLURM_STEP_NUM_TASKS
  int local_rank = 0;  ///< SLURM_LOCALID
  std::string run;     ///< job and step, the same in all tasks of the step and nowhere else
  std::string host;    ///< of task 0: MASTER_ADDR, or the first of SLURM_STEP_NODELIST
  int port = 0;        ///< where task 0 listens: MASTER_PORT, or one made of the job and step
};

/// How many tasks the step of this process has; 1 outside a step. Throws InputError for a
/// SLURM_STEP_NUM_TASKS that is no number.
int slurm_tasks();

/// The step of this process, if it has more than one task. Throws InputError naming the variable
/// that is missing or malformed.
std::optional<SlurmStep> slurm_step();

/// First host of a list as Slurm writes it, such as "node[003-005,9],login"; empty for an empty or
/// malformed list.
std::string first_host(const std::string& list);

}  // namespace hydraulis
