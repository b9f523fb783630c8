#pragma once

#include <map>
#include <memory>
#include <vector>

#include "kernels/communicator.h"

namespace hydraulis {

/// Communicators by their members (ranks of the world, in order), made when first asked for and
/// kept: strategies come back. Every member must ask for the same groups in the same order.
class ProcessGroups {
 public:
  explicit ProcessGroups(Communicator& world) : world_(world) {}
  /// nullptr for a group of one, the world for one of all its ranks in their order.
  Communicator* group(const std::vector<int>& members);

 private:
  Communicator& world_;
  std::map<std::vector<int>, std::unique_ptr<Communicator>> groups_;
};

}  // namespace hydraulis
