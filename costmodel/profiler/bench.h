#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "costmodel/profiler/sampling.h"
#include "kernels/communicator.h"
#include "kernels/compute.h"
#include "kernels/device.h"

namespace hydraulis {

/// Clock of the calling thread, in seconds since some fixed moment.
using Clock = double (*)();
double wall_seconds();
/// Leaves out when other programs had the core.
double processor_seconds();

/// How long measured work took by the wall's clock, and by the one that counts.
struct Elapsed {
  double wall = 0;
  double counted = 0;
};

/// What one rank measures with. All ranks make the calls below together.
struct Bench {
  Device* device = nullptr;
  Compute* compute = nullptr;
  Communicator* world = nullptr;
  Stream* stream = nullptr;
  DataType type = DataType::f32;  ///< of matrices; statistics and sums are of its wide type
  /// That kernels are measured with: processor_seconds where they run in the calling thread alone,
  /// so that what else the machine does is not taken for theirs.
  Clock clock = wall_seconds;
  Elapsed* elapsed = nullptr;  ///< if set, sample_call adds to it

  int rank() const { return world->rank(); }
  int ranks() const { return world->size(); }
};

/// Numbers of every rank, on every rank: count · ranks of them, by rank.
std::vector<double> gather(const Bench& bench, const std::vector<double>& mine);
/// One text of every rank, on every rank.
std::vector<std::string> gather_texts(const Bench& bench, const std::string& mine);
/// True where it is true on every rank.
bool everywhere(const Bench& bench, bool mine);
/// Rank 0's answer, on every rank.
bool as_first_rank(const Bench& bench, bool mine);

/// Measures what every rank does at the same time; the times of the slowest rank, which are those
/// that training sees. `call` puts the work on the bench's stream once.
Sampled sample_call(const Bench& bench, const std::function<void()>& call,
                    const SamplingLimits& limits);
/// The same for work that measures itself (see `sample`).
Sampled sample_run(const Bench& bench, const std::function<double(int times)>& run,
                   const SamplingLimits& limits);

/// Device memory filled with numbers of a type in [−1, 1], or in [0, 1].
void fill(const Bench& bench, const DeviceBuffer& buffer, DataType type, bool positive = false);

}  // namespace hydraulis
