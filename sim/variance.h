#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/cost_model.h"
#include "planner/program/program.h"
#include "sim/replay.h"

namespace hydraulis {

/// Laws of a factor that a time is multiplied by; each has mean 1, so that jitter by itself takes
/// no side.
enum class JitterLaw : std::uint8_t {
  lognormal,  ///< ln of it is normal
  uniform,    ///< on 1 ± √3·cv; cv below 1/√3
  tail,       ///< 1 - cv, plus an exponential of mean cv: mostly a little fast, seldom very late
};

struct Jitter {
  JitterLaw law = JitterLaw::lognormal;
  double variation = 0;  ///< coefficient of variation, standard deviation / mean; 0: none
  /// One factor for all that a device does in an iteration, instead of one for each instruction.
  bool per_iteration = false;
};

/// Who is slowed, by how much and when.
struct Slowdown {
  std::vector<int> devices;   ///< global numbers
  std::vector<int> nodes;     ///< all devices of these
  double device_share = 0;    ///< every device with this probability, by the seed
  double node_share = 0;      ///< every node with this probability, by the seed
  double factor = 1;          ///< times are this many times as long; at least 1
  std::uint64_t from = 0;     ///< first iteration of it
  std::uint64_t count = 0;    ///< iterations of it; 0: for good
  double probability = 1;     ///< in each of those iterations, drawn for each device or node anew
  bool inside_nodes = true;   ///< links inside nodes are slow; of slow links alone
  bool between_nodes = true;  ///< links between nodes are slow; of slow links alone

  bool permanent() const { return from == 0 && count == 0 && probability == 1; }
};

/// How far instructions are from the times that the cost model gives. Everything is drawn by
/// (seed, iteration, device), so a device more or a thread more changes nothing elsewhere.
struct Variance {
  std::uint64_t seed = 0;
  Jitter compute;                    ///< passes and the optimizer's step
  Jitter transfer;                   ///< all that moves data
  std::vector<Slowdown> stragglers;  ///< slow at computing
  std::vector<Slowdown> slow_links;  ///< what moves data from or to the device takes longer
  /// By group of nodes: the slowdown of passes that the cost model contains already for schemes of
  /// that group (sim/known_stragglers.h); may be empty.
  std::vector<double> contained;

  bool any() const;
};

/// The factor at which a law's distribution function is `u`, in [0, 1).
double jitter_factor(const Jitter& jitter, double u);

/// How many times as long as in the cost model computing on the device takes in the iteration,
/// jitter left out: the product of the slowdowns it is under.
double compute_slowdown(const Variance& variance, int device, int devices_per_node,
                        std::uint64_t iteration);

/// The same of moving data over the device's links inside its node or between nodes.
double link_slowdown(const Variance& variance, int device, int devices_per_node, bool between_nodes,
                     std::uint64_t iteration);

/// Multiplies the times of an iteration's instructions. The devices of a stage move together, so
/// an instruction takes the time of the slowest of them. Jitter is drawn per device and instruction
/// (or iteration). A transfer is as slow as the slower of its ends (its instructions meet in one
/// activity); parameters and gradients pass the links of the stage and of the devices that own the
/// layers; the norm, barriers and all-to-alls pass all links of the program. Where one instruction
/// moves bytes inside and between nodes, each kind of link lengthens its own part. What is inside a
/// pass (tensor-parallel collectives that the profile's times contain) is computing.
void vary(Durations& durations, const Program& program, const CostModel& model,
          const Variance& variance, std::uint64_t iteration);

/// Throws InputError when a device or node is named that the cluster does not have; `where` names
/// the file.
void check_variance(const Variance& variance, const ClusterSpec& cluster, const std::string& where);

/// What varies and who is slow, for people; one statement a line.
std::vector<std::string> variance_notes(const Variance& variance, const ClusterSpec& cluster);

}  // namespace hydraulis
