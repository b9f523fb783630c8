#include "costmodel/scheme_space.h"

#include <array>

#include "base/error.h"
#include "costmodel/derived_schemes.h"
#include "costmodel/layer_splits.h"

namespace hydraulis {
namespace {

constexpr std::array kRings = {2, 4, 8};

struct Part {
  const char* name;
  bool SchemeSpace::*wanted;
};
constexpr Part kParts[] = {{"cp", &SchemeSpace::context_parallel},
                           {"recompute", &SchemeSpace::recompute},
                           {"layers", &SchemeSpace::layer_splits}};

}  // namespace

std::string to_string(const SchemeSpace& space) {
  std::string text;
  for (const Part& part : kParts) {
    if (space.*part.wanted) text += (text.empty() ? "" : ",") + std::string(part.name);
  }
  return text;
}

SchemeSpace parse_scheme_space(std::string_view text, const std::string& where) {
  SchemeSpace space;
  for (std::size_t begin = 0; begin < text.size() + 1 && !text.empty();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    bool known = false;
    for (const Part& part : kParts) {
      if (word != part.name) continue;
      known = !(space.*part.wanted);
      space.*part.wanted = true;
    }
    if (!known) {
      throw InputError(
          "{}: '{}', expected cp, recompute and layers, each once at most, with commas", where,
          text);
    }
    begin = end + 1;
  }
  return space;
}

Profile widened_profile(const ModelSpec& model, const ClusterSpec& cluster, const Profile& profile,
                        MemoryModel memory, const SchemeSpace& space) {
  CostModel widened;
  widened.model = model;
  widened.cluster = cluster;
  widened.profile = profile;
  widened.memory = memory;
  widened.optimizer = {cluster.devices(), 1, 1};
  if (space.recompute && memory == MemoryModel::published) {
    throw InputError(
        "recomputation: the published memory formula has no constants for it; --memory-model "
        "composed has");
  }
  if (space.recompute) add_recompute_schemes(widened);
  if (space.context_parallel) add_ring_schemes(widened, kRings);
  if (space.layer_splits) add_layer_splits(widened);
  return widened.profile;
}

}  // namespace hydraulis
