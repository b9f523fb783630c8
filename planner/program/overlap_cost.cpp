#include "planner/program/overlap_cost.h"

#include <algorithm>

#include "costmodel/collective_cost.h"

namespace hydraulis {
namespace {

constexpr double kSlowdown = 0.189;
constexpr ExchangeShare kAmpereShare{121.0 / 300, 8.7 / 11.7};

}  // namespace

double overlap_slowdown(const ClusterSpec& cluster) {
  return collective_network(cluster).generation == NcclGeneration::none ? 0 : kSlowdown;
}

double slowed(double compute, double traffic, double slowdown) {
  // A second beside traffic does 1 / (1 + slowdown) seconds of work.
  return compute + slowdown * std::min(compute, traffic / (1 + slowdown));
}

ExchangeShare exchange_share(const ClusterSpec& cluster) {
  return collective_network(cluster).generation == NcclGeneration::ampere ? kAmpereShare
                                                                          : ExchangeShare{};
}

}  // namespace hydraulis
