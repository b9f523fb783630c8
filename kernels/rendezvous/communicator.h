#pragma once

#include <memory>

#include "kernels/communicator.h"
#include "kernels/rendezvous/connection.h"

namespace hydraulis::rendezvous {

/// All ranks of a job with host memory, for what they agree on: all-reduce, all-gather, broadcast,
/// barrier, subgroups and abort, each done when the call returns. What moves a model's numbers
/// (reduce-scatter, all-to-all, messages) is the device's communicator's; here it is a
/// std::logic_error.
std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Connection> connection);

}  // namespace hydraulis::rendezvous
