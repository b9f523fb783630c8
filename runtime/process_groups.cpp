#include "runtime/process_groups.h"

namespace hydraulis {

Communicator* ProcessGroups::group(const std::vector<int>& members) {
  if (members.size() < 2) return nullptr;
  std::unique_ptr<Communicator>& found = groups_[members];
  if (!found) found = world_.subgroup(members);
  return found.get();
}

}  // namespace hydraulis
