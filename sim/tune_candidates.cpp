#include "sim/tune_candidates.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "planner/mixtures.h"

namespace hydraulis {
namespace {

/// Collects strategies that differ in more than the order of their pipelines.
class Pool {
 public:
  void add(const Strategy& strategy) {
    Strategy key = strategy;
    std::sort(key.begin(), key.end());
    if (known_.insert(std::move(key)).second) strategies_.push_back(strategy);
  }
  std::vector<Strategy> take() { return std::move(strategies_); }

 private:
  std::set<Strategy> known_;
  std::vector<Strategy> strategies_;
};

/// Large pipelines first, as strategies are written.
void sort_for_people(Strategy& strategy) {
  std::stable_sort(strategy.begin(), strategy.end(), [](const Scheme& a, const Scheme& b) {
    const auto key = [](const Scheme& s) { return std::tuple(-s.tp, -s.devices()); };
    return key(a) != key(b) ? key(a) < key(b) : a < b;
  });
}

}  // namespace

std::vector<Strategy> candidate_strategies(const LengthTrace& trace,
                                           const TunePoolRequest& request) {
  Pool pool;
  const int devices = request.model.cluster.devices();
  const std::vector<SchemeOption> schemes = scheme_options(request.model, request.max_tokens);
  for (const SchemeOption& option : schemes) {
    if (option.max_tokens <= 0 || devices % option.scheme.devices() != 0) continue;
    pool.add(Strategy(static_cast<std::size_t>(devices / option.scheme.devices()), option.scheme));
  }
  ProposalOptions options;
  options.context = request.context;
  options.max_tokens_cap = request.max_tokens;
  options.tokens_per_batch = request.tokens_per_batch;
  for (const Strategy& strategy : propose(trace, request.model, options).set.strategies) {
    pool.add(strategy);
  }
  for (const Strategy& strategy : mixtures(schemes, devices, request.shortest_reach)) {
    pool.add(strategy);
  }
  return pool.take();
}

std::vector<Strategy> neighbours(const Strategy& strategy, std::span<const Scheme> schemes) {
  std::map<Scheme, int> counts;
  for (const Scheme& scheme : strategy) ++counts[scheme];
  Pool pool;
  pool.add(strategy);
  for (const auto& [out, count] : counts) {
    for (const Scheme& in : schemes) {
      if (in == out) continue;
      const int unit = std::lcm(out.devices(), in.devices());
      const int gives = unit / out.devices();
      const int gets = unit / in.devices();
      const int most = count / gives;
      if (most < 1) continue;
      for (const int times : std::set<int>{1, std::min(2, most), (most + 1) / 2, most}) {
        Strategy next;
        int left = times * gives;
        for (const Scheme& scheme : strategy) {
          if (scheme == out && left > 0) {
            --left;
          } else {
            next.push_back(scheme);
          }
        }
        next.insert(next.end(), static_cast<std::size_t>(times * gets), in);
        sort_for_people(next);
        pool.add(next);
      }
    }
  }
  std::vector<Strategy> result = pool.take();
  result.erase(result.begin());
  return result;
}

std::vector<Strategy> strategies_for_batch(std::span<const std::uint32_t> lengths,
                                           const TunePoolRequest& request, std::size_t most) {
  constexpr std::int64_t kGridPoints = 128;  // coarse: one batch says no more
  std::map<std::int64_t, double> counts;
  for (const std::uint32_t length : lengths) {
    if (length > 0) counts[length] += 1;
  }
  if (counts.empty()) return {};
  ProposalProblem problem;
  for (const auto& [length, count] : counts) problem.histogram.push_back({length, count});
  problem.context = counts.rbegin()->first;
  problem.length_step = std::max<std::int64_t>(128, request.context / kGridPoints);
  problem.device_step = 1;
  problem.devices = request.model.cluster.devices();
  problem.optimizer = request.model.optimizer;
  problem.schemes = scheme_options(request.model, request.max_tokens);
  // As in propose(): micro-batches are filled, so their constant is spread over their tokens.
  for (SchemeOption& option : problem.schemes) {
    if (option.max_tokens <= 0) continue;
    option.cost.b += option.cost.c / static_cast<double>(option.max_tokens);
    option.cost.c = 0;
  }
  std::vector<Strategy> strategies = propose_strategies(problem).set.strategies;
  if (strategies.size() > most) strategies.resize(most);
  return strategies;
}

std::vector<OptimizerLayout> optimizer_layouts(const CostModel& model) {
  std::set<int> tensor{1};
  std::set<int> pipeline{1};
  for (const Scheme& scheme : known_schemes(model)) {
    tensor.insert(scheme.tp);
    pipeline.insert(scheme.pp);
  }
  std::vector<OptimizerLayout> layouts;
  const int devices = model.cluster.devices();
  for (const int tp : tensor) {
    for (const int pp : pipeline) {
      if (pp > model.model.layers || devices % (tp * pp) != 0) continue;
      layouts.push_back({devices / (tp * pp), tp, pp});
    }
  }
  return layouts;
}

}  // namespace hydraulis
