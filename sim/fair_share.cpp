#include "sim/fair_share.h"

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr double kRising = -1;

}  // namespace

FairShare::FairShare(std::vector<double> capacities, std::size_t activities)
    : resources_(capacities.size()),
      uses_(activities),
      rate_(activities),
      next_rate_(activities),
      seen_(activities) {
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

void FairShare::start(std::uint32_t activity, std::span<const ResourceUse> uses) {
  uses_[activity] = uses;
  rate_[activity] = 0;
  bool takes = false;
  for (const ResourceUse& use : uses) {
    if (use.amount <= 0) continue;
    takes = true;
    resources_[use.resource].users.push_back(activity);
    touch(use.resource);
  }
  if (!takes) free_.push_back(activity);
}

void FairShare::end(std::uint32_t activity) {
  for (const ResourceUse& use : uses_[activity]) {
    if (use.amount <= 0) continue;
    std::vector<std::uint32_t>& users = resources_[use.resource].users;
    users.erase(std::find(users.begin(), users.end(), activity));
    touch(use.resource);
  }
  uses_[activity] = {};
  rate_[activity] = 0;
}

void FairShare::collect_component() {
  component_.clear();
  for (std::size_t next = 0; next < touched_.size(); ++next) {
    for (const std::uint32_t activity : resources_[touched_[next]].users) {
      if (seen_[activity] != 0) continue;
      seen_[activity] = 1;
      component_.push_back(activity);
      for (const ResourceUse& use : uses_[activity]) {
        if (use.amount > 0) touch(use.resource);
      }
    }
  }
}

// All rates rise together; whenever a resource is full, those that use it stay where they are.
void FairShare::fill() {
  for (const std::uint32_t r : touched_) {
    resources_[r].left = resources_[r].capacity;
    resources_[r].wanted = 0;
    resources_[r].rising = 0;
  }
  for (const std::uint32_t activity : component_) {
    next_rate_[activity] = kRising;
    for (const ResourceUse& use : uses_[activity]) {
      if (use.amount <= 0) continue;
      resources_[use.resource].wanted += use.amount;
      ++resources_[use.resource].rising;
    }
  }
  std::size_t rising = component_.size();
  const auto fix = [&](std::uint32_t activity, double rate) {
    next_rate_[activity] = rate;
    --rising;
    for (const ResourceUse& use : uses_[activity]) {
      if (use.amount <= 0) continue;
      Resource& resource = resources_[use.resource];
      resource.left -= use.amount * rate;
      resource.wanted -= use.amount;
      --resource.rising;
    }
  };
  double reached = 0;
  while (rising > 0) {
    double level = 1;
    const Resource* fullest = nullptr;
    for (const std::uint32_t r : touched_) {
      const Resource& resource = resources_[r];
      if (resource.rising == 0 || !(resource.left < level * resource.wanted)) continue;
      level = resource.left / resource.wanted;
      fullest = &resource;
    }
    reached = std::max(reached, level);  // rounding must not let it fall
    for (const std::uint32_t activity : fullest == nullptr ? component_ : fullest->users) {
      if (next_rate_[activity] == kRising) fix(activity, reached);
    }
  }
}

void FairShare::solve() {
  collect_component();
  fill();
  changed_.clear();
  for (const std::uint32_t activity : component_) {
    seen_[activity] = 0;
    if (next_rate_[activity] == rate_[activity]) continue;
    rate_[activity] = next_rate_[activity];
    changed_.push_back(activity);
  }
  for (const std::uint32_t activity : free_) {
    rate_[activity] = 1;
    changed_.push_back(activity);
  }
  free_.clear();
  std::sort(changed_.begin(), changed_.end());
  for (const std::uint32_t r : touched_) resources_[r].seen = false;
  touched_.clear();
}

}  // namespace hydraulis
