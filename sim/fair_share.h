#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace hydraulis {

/// How much of a resource an activity takes when it runs at full speed.
struct ResourceUse {
  std::uint32_t resource = 0;
  double amount = 0;  ///< in the unit of the resource's capacity; not negative
};

/// Activities that share resources (cores, links) max-min fairly: each runs at a rate of at most 1,
/// no resource is used beyond its capacity, and no activity could run faster without slowing down
/// one that runs no faster than it (Bertsekas and Gallager, Data Networks, 6.5.2). Rates change as
/// activities come and go; only those that share something with them, directly or through others,
/// are looked at again.
class FairShare {
 public:
  /// Capacities are positive. Activities are numbered from 0 to `activities` − 1.
  FairShare(std::vector<double> capacities, std::size_t activities);

  /// The activity runs from now on; `uses` must outlive it and name each resource at most once.
  void start(std::uint32_t activity, std::span<const ResourceUse> uses);
  void end(std::uint32_t activity);
  /// Of a running activity, as of the last settle().
  double rate(std::uint32_t activity) const { return rate_[activity]; }

  /// Takes what has started and ended into account: changed(activity) for every running activity
  /// whose rate is another than before (0 before it started), in ascending order.
  template <typename Changed>
  void settle(Changed&& changed) {
    if (touched_.empty() && free_.empty()) return;
    solve();
    for (const std::uint32_t activity : changed_) changed(activity);
  }

 private:
  void touch(std::uint32_t resource);
  void collect_component();
  void fill();
  void solve();

  struct Resource {
    double capacity = 0;
    double left = 0;         ///< while filling: not taken by activities whose rate is fixed
    double wanted = 0;       ///< while filling: amounts of those whose rate still rises
    std::size_t rising = 0;  ///< and their number
    bool seen = false;       ///< in the component that is looked at
    std::vector<std::uint32_t> users;
  };
  std::vector<Resource> resources_;
  std::vector<std::span<const ResourceUse>> uses_;  ///< by activity
  std::vector<double> rate_;                        ///< by activity; 0 when it does not run
  std::vector<double> next_rate_;                   ///< while filling; negative: still rising
  std::vector<char> seen_;                          ///< activities in the component
  std::vector<std::uint32_t> touched_;              ///< resources, and then their component
  std::vector<std::uint32_t> component_;            ///< activities
  std::vector<std::uint32_t> free_;                 ///< started without any use
  std::vector<std::uint32_t> changed_;
};

}  // namespace hydraulis
