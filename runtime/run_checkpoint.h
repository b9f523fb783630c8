#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "runtime/optimizer_shard.h"
#include "runtime/run_config.h"

namespace hydraulis {

/// Of a run beside its parameters and moments.
struct RunCheckpoint {
  std::int64_t step = 0;     ///< iterations done
  std::int64_t updates = 0;  ///< of the optimizer
  Json data;                 ///< TrainingData::position()
  std::vector<double> recent_losses;
};

/// Writes a checkpoint of the run from all ranks together, each its share of the tensors, and keeps
/// the newest ones. Returns its folder. Throws InputError on all ranks when a rank cannot write;
/// the checkpoints before are intact.
std::filesystem::path save_checkpoint(const Backend& backend, const RunConfig& config,
                                      const DecoderSpec& decoder, const OptimizerShard& shard,
                                      const RunCheckpoint& state);

/// Loads the newest whole checkpoint under `root`, saying through `note` what was passed over;
/// nothing when there is none. Throws InputError when it is of another model, or when there are
/// checkpoints and none is whole.
std::optional<RunCheckpoint> load_newest(const Backend& backend, const std::filesystem::path& root,
                                         const DecoderSpec& decoder, const OptimizerShard& shard,
                                         const std::function<void(const std::string&)>& note);

/// Parameters of a Hugging Face model; it must have the decoder's shape. Throws InputError.
void load_hugging_face(const std::filesystem::path& folder, const DecoderSpec& decoder,
                       const OptimizerShard& shard);

}  // namespace hydraulis
