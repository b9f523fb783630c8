#pragma once

#include <memory>

#include "kernels/communicator.h"

namespace hydraulis::cuda {

/// A group of processes, each with a GPU, that communicate by NCCL. `host` is the same group on the
/// CPU backend, which NCCL's communicators are agreed on with (its operations on `host_device`),
/// and which barriers and abort go through. Every group has a communicator for its collectives and
/// one for each channel, so that channels do not wait for one another; on each of them a rank's
/// operations run one after another, whatever their streams. Making them, which throws
/// CommunicationError when a member does not come in time, and waiting for a stream or an event of
/// the device, which must outlive the communicator, then ends in a CommunicationError when NCCL
/// reports one or the time limit is over. Sums of the same contributions give the same bits on the
/// same machines. Called by all members.
std::unique_ptr<Communicator> make_communicator(Device& device, Device& host_device,
                                                std::shared_ptr<Communicator> host);

}  // namespace hydraulis::cuda
