#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/checkpoint_folder.h"
#include "runtime/hugging_face.h"

namespace hydraulis {

/// A checkpoint by its own folder, or the newest whole one of a run's; `notes` says which were left
/// out. Throws InputError when there is none.
CheckpointEntry find_checkpoint(const std::filesystem::path& path, std::vector<std::string>& notes);

/// Turns a Hugging Face model into a checkpoint of step 0 without optimizer states, its parameters
/// stored as `type`, from which a run starts. `root` must not hold checkpoints yet. Returns its
/// entry; throws InputError.
CheckpointEntry import_hugging_face(const HuggingFaceModel& model,
                                    const std::filesystem::path& root, StoredType type);

/// Writes the parameters of a checkpoint, verified to the last bit first, as a Hugging Face model.
/// Throws InputError: damaged, or a parameter missing or misshapen.
void export_checkpoint(const std::filesystem::path& checkpoint, const std::filesystem::path& folder,
                       const ExportOptions& options);

}  // namespace hydraulis
