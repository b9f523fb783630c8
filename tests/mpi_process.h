#pragma once

#include "kernels/communicator.h"

namespace hydraulis::test {

/// What this rank of a test under mpirun has: the same in all its tests. Tests run on all ranks in
/// the same order, with a barrier before each; the first failure on any rank ends the job.
CpuProcess& mpi_process();

}  // namespace hydraulis::test
