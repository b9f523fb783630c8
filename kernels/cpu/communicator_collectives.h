#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/cpu/communicator_operation.h"

namespace hydraulis::cpu {

// Each starts a communication among the members of a group of more than one. Parameters are those
// of Communicator, checked. Every rank's share is sent to its peers directly, all at once.

/// Sums and maxima are taken in the order of the ranks, element by element, so their bits depend on
/// the contributions alone. Large buffers go through in blocks, two at a time.
std::shared_ptr<Pending> start_all_reduce(const std::shared_ptr<Group>& group, void* buffer,
                                          std::int64_t count, DataType type, Reduction reduction);
std::shared_ptr<Pending> start_reduce_scatter(const std::shared_ptr<Group>& group,
                                              const void* input, void* output, std::int64_t count,
                                              DataType type);
std::shared_ptr<Pending> start_all_gather(const std::shared_ptr<Group>& group, const void* input,
                                          void* output, std::int64_t count, DataType type);
/// Down a binomial tree.
std::shared_ptr<Pending> start_broadcast(const std::shared_ptr<Group>& group, void* buffer,
                                         std::int64_t bytes, int root);
std::shared_ptr<Pending> start_all_to_all_v(const std::shared_ptr<Group>& group, const void* input,
                                            std::span<const std::int64_t> send_bytes,
                                            std::span<const std::int64_t> send_offsets,
                                            void* output,
                                            std::span<const std::int64_t> receive_bytes,
                                            std::span<const std::int64_t> receive_offsets);
std::shared_ptr<Pending> start_barrier(const std::shared_ptr<Group>& group);
/// Messages to and from others; `own` copies are done.
std::shared_ptr<Pending> start_exchange(const std::shared_ptr<Group>& group,
                                        std::span<const Message> messages, Channel channel);
/// True when a message of the exchange under way touches memory that one of these writes, or writes
/// memory that one of these touches.
bool conflicts(const Pending& exchange, std::span<const Message> messages);

/// A context that none of the members has used: agreed on by the members themselves, by messages in
/// the parent's context, within the time limit. `group` has its members and the parent's context.
int agree_on_context(const std::shared_ptr<Group>& group);

}  // namespace hydraulis::cpu
