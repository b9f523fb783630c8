#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "costmodel/cost_model.h"
#include "planner/program/program.h"
#include "planner/program/timeline.h"
#include "sim/topology.h"

namespace hydraulis {

/// How long each instruction takes: seconds[stage][instruction], finite and not negative.
struct Durations {
  std::vector<std::vector<double>> seconds;
};

struct ReplayOptions {
  /// Gives memory high-water marks (composed model) when set; must outlive the call.
  const CostModel* memory_model = nullptr;
  /// Cores of each node that its devices share (ClusterSpec::cores_per_node); 0: every device and
  /// every stream of it runs at its own speed.
  int cores_per_node = 0;
  /// Transfers become flows that share the links of this network (replay() says how); none: every
  /// transfer has its links to itself. Without effect where cores are shared.
  std::shared_ptr<const Topology> network;
  double wire_bytes = 1;  ///< bytes on its links for each byte of a program, which counts bf16
  /// The file a program came from, when a user gave it: faults in it are then bad input (exit code
  /// 2) that names the file, and otherwise internal faults of whoever made the program.
  std::string program_file;
};

/// When an instruction ran, in seconds of virtual time. The two ends of a transfer, and all parts
/// of a collective, share one span.
struct Span {
  double start = 0;
  double end = 0;
};

/// What one stage did. Its devices move together, so each number holds for each of them, and
/// compute + exposed_communication + idle = makespan.
struct StageReplay {
  double compute_seconds = 0;                ///< something ran on the compute stream
  double communication_seconds = 0;          ///< at least one other stream was moving data
  double exposed_communication_seconds = 0;  ///< of that, while nothing was computed
  double idle_seconds = 0;                   ///< neither: the bubble
  int peak_live_micro_batches = 0;           ///< forward begun, backward not ended
  /// Of those, padding included; on one of several runs of layers that part of the tokens counts.
  std::uint64_t peak_live_tokens = 0;
  double memory_bytes = 0;  ///< high-water mark of one device; 0: no memory model
};

/// One program run in virtual time.
struct Replay {
  double makespan_seconds = 0;
  std::vector<StageReplay> stages;
  std::vector<std::vector<Span>> spans;  ///< [stage][instruction]
  std::uint64_t events = 0;              ///< handled by the engine
};

/// Runs the program: on each stage the instructions of one stream run in order, different streams
/// at once; an instruction starts when its stream is free, all of its depends_on have ended and,
/// for a send or receive, its other end is ready too. A transfer occupies the sender's send stream
/// and the receiver's receive stream for the longer of the two durations (they are matched by
/// stage, peer, direction, run of layers and micro-batch). gradient_norm and barrier are
/// collectives of all stages: the k-th of one stage meets the k-th of every other. Instructions of
/// a stage's devices are one: tensor- and context-parallel ranks move together. With
/// `cores_per_node`, durations are those at full speed, and what runs at the same time shares cores
/// max-min fairly: a stage's own streams those of its device, all devices of a node those of the
/// node.
///
/// With `network`, a transfer that moves bytes takes its time less that of its bytes first (latency
/// and whatever is not the wire's), then its bytes inside nodes, then those between nodes, as flows
/// that share links max-min fairly: one alone takes exactly its duration. All devices of a stage
/// move at the same rate. A gather of parameters comes to each of them from all owners of the layer
/// alike, a reduction goes to all owners; what owners serve is pooled: the tightest of their links
/// counts for all. Sharded parameters go round a ring of all devices. Links that what may run at
/// once cannot fill are left out.
///
/// Throws Error (InputError when options.program_file is set) for malformed programs and durations,
/// and for programs that get stuck: the message lists who waits for whom.
Replay replay(const Program& program, const Durations& durations,
              const ReplayOptions& options = {});

/// The run as a timeline, stage by stage in the order of instructions.
Timeline make_timeline(const Program& program, const Replay& replay, int iteration = 0);

/// Share of all device time in which devices idle, waiting for other pipelines and devices without
/// a stage included: Σ idle / (program.devices · makespan). 0 when the makespan is 0.
double bubble_share(const Program& program, const Replay& replay);
/// The same mean over devices of exposed communication, in seconds.
double exposed_communication_seconds(const Program& program, const Replay& replay);

}  // namespace hydraulis
