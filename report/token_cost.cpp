#include "report/token_cost.h"

namespace hydraulis {

TokenCost cost_of_a_billion_tokens(const RunSummary& summary, const DeviceRates& rates) {
  constexpr double kBillion = 1e9;
  constexpr double kSecondsPerHour = 3600;
  constexpr double kWattsPerKilowatt = 1000;
  TokenCost cost;
  if (!(summary.tokens_per_second > 0)) return cost;
  cost.device_hours = kBillion / summary.tokens_per_second / kSecondsPerHour * rates.devices;
  cost.kilowatt_hours = cost.device_hours * rates.watts / kWattsPerKilowatt;
  cost.price = cost.device_hours * rates.price_per_hour;
  return cost;
}

void add_token_cost(Json& json, const RunSummary& summary, const DeviceRates& rates) {
  const TokenCost cost = cost_of_a_billion_tokens(summary, rates);
  const auto known = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
  json["device_hours_per_billion_tokens"] = known(cost.device_hours);
  json["kilowatt_hours_per_billion_tokens"] = known(cost.kilowatt_hours);
  json["cost_per_billion_tokens"] = known(cost.price);
}

}  // namespace hydraulis
