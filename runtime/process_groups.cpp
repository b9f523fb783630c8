#include "runtime/process_groups.h"

namespace hydraulis {

Communicator* ProcessGroups::group(const std::vector<int>& members) {
  if (members.size() < 2) return nullptr;
  bool everyone = members.size() == static_cast<std::size_t>(world_.size());
  for (std::size_t i = 0; everyone && i < members.size(); ++i) {
    everyone = members[i] == static_cast<int>(i);
  }
  if (everyone) return &world_;
  std::unique_ptr<Communicator>& found = groups_[members];
  if (!found) found = world_.subgroup(members);
  return found.get();
}

}  // namespace hydraulis
