#pragma once

#include "base/json.h"
#include "sim/iterations.h"

namespace hydraulis {

/// What device time is worth.
struct DeviceRates {
  int devices = 0;
  double watts = 0;           ///< of one device; 0: not known
  double price_per_hour = 0;  ///< of one device, in any currency; 0: not given
};

/// What a billion trained tokens take. Every device of the cluster counts for all of the time.
struct TokenCost {
  double device_hours = 0;
  double kilowatt_hours = 0;  ///< 0: watts not known
  double price = 0;           ///< 0: not given
};

TokenCost cost_of_a_billion_tokens(const RunSummary& summary, const DeviceRates& rates);

/// Keys device_hours_per_billion_tokens, kilowatt_hours_per_billion_tokens and
/// cost_per_billion_tokens, null where not known.
void add_token_cost(Json& json, const RunSummary& summary, const DeviceRates& rates);

}  // namespace hydraulis
