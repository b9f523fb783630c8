#include "planner/mixtures.h"

#include <algorithm>

namespace hydraulis {
namespace {

/// Another scheme holds at least as much on as few devices for less time, at every length.
bool dominated(const SchemeOption& option, std::span<const SchemeOption> schemes) {
  for (const SchemeOption& other : schemes) {
    if (&other == &option || other.max_tokens < option.max_tokens) continue;
    if (other.scheme.devices() > option.scheme.devices() || other.scheme.pp > option.scheme.pp) {
      continue;
    }
    if (other.cost.a < option.cost.a && other.cost.b < option.cost.b &&
        other.cost.c < option.cost.c) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<Strategy> mixtures(std::span<const SchemeOption> schemes, int devices,
                               std::int64_t least_tokens) {
  // Some profiles know many schemes; beyond this many the pairs would outgrow their use.
  constexpr std::size_t kMostSchemes = 24;
  std::vector<const SchemeOption*> useful;
  for (const SchemeOption& option : schemes) {
    if (option.max_tokens <= 0 || option.scheme.devices() > devices) continue;
    if (dominated(option, schemes)) continue;
    useful.push_back(&option);
  }
  if (useful.size() > kMostSchemes) {
    // Those that spend least on a token, and the one that holds most.
    std::ranges::stable_sort(useful, {}, [](const SchemeOption* option) {
      return option->cost.b * option->scheme.devices();
    });
    const SchemeOption* longest = *std::ranges::max_element(useful, {}, &SchemeOption::max_tokens);
    useful.resize(kMostSchemes);
    if (std::ranges::find(useful, longest) == useful.end()) useful.back() = longest;
  }
  std::vector<Strategy> result;
  for (const SchemeOption* long_one : useful) {
    if (long_one->max_tokens < least_tokens) continue;
    const int large = long_one->scheme.devices();
    if (devices % large == 0) {
      result.emplace_back(static_cast<std::size_t>(devices / large), long_one->scheme);
    }
    for (const SchemeOption* filler : useful) {
      if (filler == long_one || filler->max_tokens >= long_one->max_tokens) continue;
      const int small = filler->scheme.devices();
      for (const int count : {1, 2, 3, 4, 6, 8, 12, 16}) {
        const int left = devices - count * large;
        if (left < small || left % small != 0) continue;
        Strategy strategy(static_cast<std::size_t>(count), long_one->scheme);
        strategy.insert(strategy.end(), static_cast<std::size_t>(left / small), filler->scheme);
        result.push_back(std::move(strategy));
      }
    }
  }
  return result;
}

void add_new(std::vector<Strategy>& strategies, Strategy strategy) {
  if (std::ranges::find(strategies, strategy) == strategies.end()) {
    strategies.push_back(std::move(strategy));
  }
}

}  // namespace hydraulis
