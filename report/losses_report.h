#pragma once

#include <vector>

#include "base/json.h"
#include "sim/losses.h"

namespace hydraulis {

/// A part of the device time, for people and machines.
struct LossShare {
  const char* name;  ///< for people
  const char* key;   ///< in JSON
  double share = 0;  ///< of the whole
};

/// All parts; their shares add up to 1 (all 0 where there is no time).
std::vector<LossShare> loss_shares(const Losses& losses);
Json losses_json(const Losses& losses);

}  // namespace hydraulis
