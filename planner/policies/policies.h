#pragma once

#include <memory>

#include "planner/policy.h"

namespace hydraulis {

// One function a policy, each in the file of its name; planner/policies/registry.cpp lists them.

/// The strategy set, one strategy chosen for each iteration, two-stage assignment.
std::unique_ptr<Policy> make_hydraulis(const PolicySetup& setup);
/// The same with the strategies of coming batches in view: switching costs
/// PolicySetup::switch_seconds, and by dynamic programming over a window of batches a strategy is
/// changed only where that pays. Every batch is trained as drawn.
std::unique_ptr<Policy> make_steady(const PolicySetup& setup);
/// The same with sequences dealt anew over a window of batches (planner/window_split.h). Reorders
/// data.
std::unique_ptr<Policy> make_ahead(const PolicySetup& setup);
/// The best homogeneous layout with the two-stage assignment: what assignment alone gains.
std::unique_ptr<Policy> make_hydraulis_static(const PolicySetup& setup);
/// The best homogeneous layout, sequences packed to the context length and dealt round robin: what
/// a Megatron-LM user does today.
std::unique_ptr<Policy> make_static_pack(const PolicySetup& setup);
/// The same with sequences dispatched to the pipelines by their time before each packs its own: the
/// published ablation's step between packing and the two-stage assignment.
std::unique_ptr<Policy> make_static_dispatch(const PolicySetup& setup);
/// The best homogeneous layout, sequences of like length padded to the longest of their
/// micro-batch.
std::unique_ptr<Policy> make_static_pad(const PolicySetup& setup);

// The systems that the above is compared with, by their published rules; docs/policies.md says what
// each leaves out and what of its own paper it reproduces.

/// Megatron-LM (github NVIDIA/Megatron-LM): sequences packed in the order they were drawn, each
/// pack padded to the context; the best layout over tp, pp, cp and dp, optimizer states sharded.
std::unique_ptr<Policy> make_megatron(const PolicySetup& setup);
/// Megatron-LM's dynamic (hybrid) context parallelism (megatron/core/pipeline_parallel/
/// hybrid_cp_schedule.py): each sequence on the smallest power-of-two ring that holds it, in rounds
/// balanced to 5 % with a barrier after each; no pipelines.
std::unique_ptr<Policy> make_dynamic_cp(const PolicySetup& setup);
/// DeepSpeed: ZeRO-3 with Ulysses' all-to-alls (arXiv 1910.02054, 2309.14509), one degree for the
/// run, sequences packed to the context without padding.
std::unique_ptr<Policy> make_deepspeed(const PolicySetup& setup);
/// PyTorch FSDP (arXiv 2304.11277) with context parallelism by rings where a device alone does not
/// hold the context: every rank packs the sequences that the sampler deals it, in their order, and
/// all ranks run as many steps as the one with the most.
std::unique_ptr<Policy> make_fsdp(const PolicySetup& setup);
/// HotSPa (SOSP'24, 10.1145/3694715.3695969): length buckets, a homogeneous layout each, trained
/// one after the other from the shortest up, with a switch of the parameters in between.
std::unique_ptr<Policy> make_hotspa(const PolicySetup& setup);
/// FlexSP (ASPLOS'25, arXiv 2412.01523): all-to-all groups of unequal degrees side by side, chosen
/// anew for every step, on ZeRO-3.
std::unique_ptr<Policy> make_flexsp(const PolicySetup& setup);
/// DynaPipe (EuroSys'24, arXiv 2311.10418): sequences sorted by length and split into padded
/// micro-batches by dynamic programming, the order of micro-batches optimised.
std::unique_ptr<Policy> make_dynapipe(const PolicySetup& setup);
/// WLB-LLM (OSDI'25, arXiv 2503.17924): micro-batches of unequal token counts packed for equal
/// time, outliers delayed until there is one for every micro-batch, each document split over cp.
/// Delays data.
std::unique_ptr<Policy> make_wlb(const PolicySetup& setup);
/// LongAlign's sorted batching (arXiv 2401.18058) on ZeRO-3: batches of like lengths, one sequence
/// a group and step. Reorders data.
std::unique_ptr<Policy> make_longalign(const PolicySetup& setup);
/// ByteScale's hybrid data parallelism (SIGCOMM'25, arXiv 2502.21231): every sequence on as many
/// ranks as it needs, not only powers of two, and as many micro-batches a group as balance asks.
std::unique_ptr<Policy> make_bytescale(const PolicySetup& setup);

}  // namespace hydraulis
