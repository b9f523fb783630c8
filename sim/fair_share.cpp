#include "sim/fair_share.h"

#include <utility>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr double kRising = -1;
/// Demands are sums that have been added to and taken from, so a resource counts as tight a little
/// before it is.
constexpr double kTight = 1 - 1e-9;

}  // namespace

FairShare::FairShare(std::vector<double> capacities, std::size_t kinds)
    : resources_(capacities.size()),
      uses_(kinds),
      limits_(kinds, 1),
      running_(kinds),
      listed_(kinds),
      rate_(kinds),
      next_rate_(kinds),
      seen_(kinds) {
  for (std::size_t r = 0; r < capacities.size(); ++r) {
    if (!(capacities[r] > 0)) {
      throw Error(ExitCode::internal,
                  fmt::format("resource {} has capacity {}; expected above 0", r, capacities[r]));
    }
    resources_[r].capacity = capacities[r];
  }
}

void FairShare::touch(std::uint32_t resource) {
  if (resources_[resource].seen) return;
  resources_[resource].seen = true;
  touched_.push_back(resource);
}

void FairShare::start(std::uint32_t kind, std::span<const ResourceUse> uses) {
  if (running_[kind]++ == 0) {
    uses_[kind] = uses;
    rate_[kind] = 0;
    started_.push_back(kind);
  }
  for (const ResourceUse& use : uses_[kind]) {
    if (use.amount <= 0) continue;
    Resource& resource = resources_[use.resource];
    if (listed_[kind] == 0) resource.users.push_back(kind);
    resource.demand += use.amount * limits_[kind];
    ++resource.running;
    touch(use.resource);
  }
  listed_[kind] = 1;
}

void FairShare::end(std::uint32_t kind) {
  for (const ResourceUse& use : uses_[kind]) {
    if (use.amount <= 0) continue;
    Resource& resource = resources_[use.resource];
    resource.demand = --resource.running == 0 ? 0 : resource.demand - use.amount * limits_[kind];
    touch(use.resource);
  }
  if (--running_[kind] == 0) rate_[kind] = 0;
}

void FairShare::collect(std::uint32_t kind) {
  if (running_[kind] == 0 || std::exchange(seen_[kind], 1) != 0) return;
  component_.push_back(kind);
  for (const ResourceUse& use : uses_[kind]) {
    if (use.amount > 0 && resources_[use.resource].tight) touch(use.resource);
  }
}

// Who shares a resource that even everything at its limit does not fill is nobody's neighbour for
// it, so only resources that are tight, or were until now, lead on.
void FairShare::collect_component() {
  component_.clear();
  std::erase_if(touched_, [this](std::uint32_t r) {
    Resource& resource = resources_[r];
    const bool was_tight = resource.tight;
    resource.tight = resource.demand > kTight * resource.capacity;
    resource.seen = resource.tight || was_tight;
    return !resource.seen;
  });
  std::size_t next = 0;
  while (next < touched_.size()) {  // what is collected may touch more
    const std::uint32_t r = touched_[next++];
    for (const std::uint32_t kind : resources_[r].users) collect(kind);
  }
  for (const std::uint32_t kind : started_) collect(kind);
}

void FairShare::fix(std::uint32_t kind, double rate) {
  next_rate_[kind] = rate;
  for (const ResourceUse& use : uses_[kind]) {
    Resource& resource = resources_[use.resource];
    if (use.amount <= 0 || !resource.seen) continue;
    const double amount = running_[kind] * use.amount;
    resource.left -= amount * rate;
    resource.wanted -= amount;
    --resource.rising;
  }
}

// All rates rise together; whenever a resource is full, those that use it stay where they are. The
// level at which a resource will be full never falls while others stay, so the heap's keys may be
// old and are looked up again when they come to the top.
void FairShare::fill() {
  for (const std::uint32_t r : touched_) {
    resources_[r].left = resources_[r].capacity;
    resources_[r].wanted = 0;
    resources_[r].rising = 0;
  }
  for (const std::uint32_t kind : component_) {
    next_rate_[kind] = kRising;
    for (const ResourceUse& use : uses_[kind]) {
      Resource& resource = resources_[use.resource];
      if (use.amount <= 0 || !resource.seen) continue;
      resource.wanted += running_[kind] * use.amount;
      ++resource.rising;
    }
  }
  filling_.clear();
  const auto full_at = [this](std::uint32_t r) {
    return resources_[r].left / resources_[r].wanted;
  };
  for (const std::uint32_t r : touched_) {
    if (resources_[r].rising > 0 && resources_[r].left < resources_[r].wanted) {
      filling_.push_back({full_at(r), r});
    }
  }
  const auto resources = static_cast<std::uint32_t>(resources_.size());
  for (const std::uint32_t kind : component_) {
    if (limits_[kind] < 1) filling_.push_back({limits_[kind], resources + kind});
  }
  std::make_heap(filling_.begin(), filling_.end());
  double reached = 0;
  while (!filling_.empty()) {
    std::pop_heap(filling_.begin(), filling_.end());
    const auto [level, r] = filling_.back();
    filling_.pop_back();
    if (r >= resources) {
      if (next_rate_[r - resources] == kRising) {
        reached = std::max(reached, level);
        fix(r - resources, level);
      }
      continue;
    }
    const Resource& resource = resources_[r];
    if (resource.rising == 0 || !(resource.left < resource.wanted)) continue;
    if (const double now = full_at(r); now > level) {
      filling_.push_back({now, r});
      std::push_heap(filling_.begin(), filling_.end());
      continue;
    }
    reached = std::max(reached, level);  // rounding must not let it fall
    for (const std::uint32_t kind : resource.users) {
      if (seen_[kind] != 0 && next_rate_[kind] == kRising) fix(kind, reached);
    }
  }
  for (const std::uint32_t kind : component_) {
    if (next_rate_[kind] == kRising) next_rate_[kind] = limits_[kind];
  }
}

void FairShare::solve() {
  collect_component();
  fill();
  changed_.clear();
  for (const std::uint32_t kind : component_) {
    seen_[kind] = 0;
    if (next_rate_[kind] == rate_[kind]) continue;
    rate_[kind] = next_rate_[kind];
    changed_.push_back(kind);
  }
  started_.clear();
  std::sort(changed_.begin(), changed_.end());
  for (const std::uint32_t r : touched_) resources_[r].seen = false;
  touched_.clear();
}

}  // namespace hydraulis
