#pragma once

#include <functional>
#include <vector>

#include "costmodel/cost_model.h"

namespace hydraulis {

/// Layers of each of `stages` stages, at least one each and `layers` in all, such that the largest
/// cost(stage, layers of it) is as small as can be. Costs must not fall with the layers. Of equals
/// the earlier stage takes a layer.
std::vector<int> balanced_split(int stages, int layers,
                                const std::function<double(int stage, int layers)>& cost);

/// Adds schemes with unequal stages (`layers=`) for every scheme with more than one stage: one
/// whose slowest stage is fastest on short sequences, one on a long one, and, by the composed
/// memory model, one whose fullest stage has most room, where they differ from the even split. The
/// first and last stage have the embedding and the head; a profile that knows only whole stages
/// gives them no time of their own, so that its splits gain memory alone.
void add_layer_splits(CostModel& model);

}  // namespace hydraulis
