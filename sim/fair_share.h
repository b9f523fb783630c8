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
  bool operator==(const ResourceUse&) const = default;
};

/// Activities that share resources (cores, links) max-min fairly: each runs at a rate of at most 1,
/// or of what its kind is limited to, no resource is used beyond its capacity, and no activity
/// could run faster without slowing down one that runs no faster than it (Bertsekas and Gallager,
/// Data Networks, 6.5.2). Activities of one kind use the same amounts of the same resources, so
/// they all run at the same rate and are one unknown, however many there are. Rates change as
/// activities come and go; only kinds that share something with those, directly or through others,
/// are looked at again.
class FairShare {
 public:
  /// Capacities are positive. Kinds are numbered from 0 to `kinds` − 1.
  FairShare(std::vector<double> capacities, std::size_t kinds);
  /// Activities of the kind run at most at this rate, in (0, 1]; said before any of them starts.
  void limit(std::uint32_t kind, double rate) { limits_[kind] = rate; }

  /// One more activity of the kind runs from now on; `uses` must outlive it, be the same for every
  /// one of the kind and name each resource at most once.
  void start(std::uint32_t kind, std::span<const ResourceUse> uses);
  /// One of them has ended.
  void end(std::uint32_t kind);
  /// Of each running activity of the kind, as of the last settle(); 0 when none ran.
  double rate(std::uint32_t kind) const { return rate_[kind]; }

  /// Takes what has started and ended into account: changed(kind) for every running kind whose rate
  /// is another than before (0 before its first activity started), in ascending order.
  template <typename Changed>
  void settle(Changed&& changed) {
    if (touched_.empty() && started_.empty()) return;
    solve();
    for (const std::uint32_t kind : changed_) changed(kind);
  }

 private:
  struct Resource {
    double capacity = 0;
    double demand = 0;        ///< of everything that runs, each at its limit
    std::size_t running = 0;  ///< activities
    bool tight = false;       ///< as of the last settle(): the demand is beyond the capacity
    double left = 0;          ///< while filling: not taken by kinds whose rate is fixed
    double wanted = 0;        ///< while filling: amounts of those whose rate still rises
    std::size_t rising = 0;   ///< and their number
    bool seen = false;        ///< in the component that is looked at
    std::vector<std::uint32_t> users;  ///< kinds, running or not
  };
  /// A resource that would be full when all rates that still rise have reached `level`, or behind
  /// the resources a kind that reaches its limit there.
  struct Filling {
    double level;
    std::uint32_t what;
    bool operator<(const Filling& other) const {  // for heaps with the least on top
      return level != other.level ? level > other.level : what > other.what;
    }
  };

  void touch(std::uint32_t resource);
  void collect(std::uint32_t kind);
  void collect_component();
  void fill();
  void fix(std::uint32_t kind, double rate);
  void solve();

  std::vector<Resource> resources_;
  std::vector<std::span<const ResourceUse>> uses_;  ///< by kind
  std::vector<double> limits_;                      ///< by kind
  std::vector<std::uint32_t> running_;              ///< by kind: how many
  std::vector<char> listed_;                        ///< by kind: among the users of its resources
  std::vector<double> rate_;                        ///< by kind; 0 when none runs
  std::vector<double> next_rate_;                   ///< while filling; negative: still rising
  std::vector<char> seen_;                          ///< kinds in the component
  std::vector<std::uint32_t> touched_;              ///< resources, and then their component
  std::vector<std::uint32_t> component_;            ///< kinds
  std::vector<std::uint32_t> started_;              ///< kinds that did not run before
  std::vector<std::uint32_t> changed_;
  std::vector<Filling> filling_;  ///< heap
};

}  // namespace hydraulis
