#pragma once

#include <memory>

#include "kernels/communicator.h"
#include "kernels/cpu/communicator_operation.h"

namespace hydraulis::cpu {

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Group> group);

}  // namespace hydraulis::cpu
