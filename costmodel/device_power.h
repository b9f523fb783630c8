#pragma once

#include <string>

namespace hydraulis {

/// Most watts that the board of a device draws by its data sheet (SXM form): an upper bound of what
/// training draws, without hosts, network and cooling. 0 for a device that is not known.
double data_sheet_watts(const std::string& device);

}  // namespace hydraulis
