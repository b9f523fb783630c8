#include "sim/fair_share.h"

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr double kRising = -1;

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
  }
  bool takes = false;
  for (const ResourceUse& use : uses_[kind]) {
    if (use.amount <= 0) continue;
    takes = true;
    if (listed_[kind] == 0) resources_[use.resource].users.push_back(kind);
    touch(use.resource);
  }
  if (takes) {
    listed_[kind] = 1;
  } else if (running_[kind] == 1) {
    free_.push_back(kind);
  }
}

void FairShare::end(std::uint32_t kind) {
  for (const ResourceUse& use : uses_[kind]) {
    if (use.amount > 0) touch(use.resource);
  }
  if (--running_[kind] == 0) rate_[kind] = 0;
}

// A kind that no longer runs had all its resources touched when it ended, so it leaves the lists of
// all of them here.
void FairShare::collect_component() {
  component_.clear();
  for (std::size_t next = 0; next < touched_.size(); ++next) {
    std::vector<std::uint32_t>& users = resources_[touched_[next]].users;
    std::erase_if(users, [this](std::uint32_t kind) {
      if (running_[kind] == 0) listed_[kind] = 0;
      return running_[kind] == 0;
    });
    for (const std::uint32_t kind : users) {
      if (seen_[kind] != 0) continue;
      seen_[kind] = 1;
      component_.push_back(kind);
      for (const ResourceUse& use : uses_[kind]) {
        if (use.amount > 0) touch(use.resource);
      }
    }
  }
}

void FairShare::fix(std::uint32_t kind, double rate) {
  next_rate_[kind] = rate;
  for (const ResourceUse& use : uses_[kind]) {
    if (use.amount <= 0) continue;
    Resource& resource = resources_[use.resource];
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
      if (use.amount <= 0) continue;
      resources_[use.resource].wanted += running_[kind] * use.amount;
      ++resources_[use.resource].rising;
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
      if (next_rate_[kind] == kRising) fix(kind, reached);
    }
  }
  for (const std::uint32_t kind : component_) {
    if (next_rate_[kind] == kRising) next_rate_[kind] = 1;
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
  for (const std::uint32_t kind : free_) {
    if (running_[kind] == 0) continue;
    rate_[kind] = limits_[kind];
    changed_.push_back(kind);
  }
  free_.clear();
  std::sort(changed_.begin(), changed_.end());
  for (const std::uint32_t r : touched_) resources_[r].seen = false;
  touched_.clear();
}

}  // namespace hydraulis
