#pragma once

#include <string>

#include "costmodel/operator_profile.h"
#include "report/report.h"

namespace hydraulis {

/// `profile compare A B`: times of B over those of A (geometric means over the sizes that both
/// have) for every kernel, group of ranks and copy direction, the machines' differences, and which
/// of the two is the slow one. JSON {ratio, points, slower ("a", "b" or null), rows[{what, points,
/// ratio}], differences[{field, a, b}], notes}. Throws InputError when they have nothing in common.
Report compare_profiles(const OperatorProfile& a, const std::string& name_a,
                        const OperatorProfile& b, const std::string& name_b);

/// `profile compare A`: the nodes of one profile side by side, or its ranks where there is one node
/// only, and the slow ones among them. JSON {rows[{name, ranks, flops, copy_bytes_per_second,
/// relative}], slow[name], notes}. Throws InputError when the profile has fewer than two ranks.
Report compare_nodes(const OperatorProfile& profile, const std::string& where);

}  // namespace hydraulis
