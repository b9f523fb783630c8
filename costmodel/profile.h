#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "costmodel/cluster_spec.h"
#include "costmodel/model_spec.h"
#include "costmodel/scheme.h"

namespace hydraulis {

/// Measured or derived time of one micro-batch on one stage of a scheme (forward and backward):
/// seconds = a·Σs² + b·Σs + c.
struct SchemeCoefficients {
  Scheme scheme;
  double a = 0;  ///< seconds per token²
  double b = 0;  ///< seconds per token
  double c = 0;  ///< seconds per micro-batch
};

/// Constants of the published memory model (published.md 3.3).
struct PublishedMemory {
  std::map<int, double> activation_bytes_by_tp;  ///< A: bytes per token, layer and hidden/tp
  double state_bytes = 0;                        ///< B
  double optimizer_share = 0;                    ///< alpha
  double constant_gap_bytes = 0;
  double safety_bytes = 0;
  double device_bound_bytes = 0;
};

/// What is known of a model's speed and memory on a device.
struct Profile {
  std::string name;
  std::string device;
  std::string origin;     ///< source of the numbers, for people
  bool analytic = false;  ///< derived from a data sheet, not measured: outputs say so
  ModelSpec model;        ///< the model that was measured
  std::vector<SchemeCoefficients> schemes;
  std::map<int, std::int64_t> min_tokens_by_tp;
  PublishedMemory memory;
  /// Which communication the times already contain, for people and for the simulator.
  bool contains_tensor_parallel_communication = true;
  bool contains_pipeline_communication = false;
  std::vector<std::string> limits;  ///< what it lacks, e.g. "no context parallelism was measured"
};

/// A preset shipped with the project ("a800-llama-32b", …) or an HDF5 file. Throws InputError.
Profile load_profile(const std::string& preset_or_path);
/// Writes the HDF5 form (docs/formats.md, "Profile"). Throws InputError.
void write_profile(const Profile& profile, const std::filesystem::path& path);

/// Throws InputError naming the field when a number is not finite, negative, or of a scheme that
/// cannot be; `where` names the file. load_profile and write_profile call it.
void check_profile(const Profile& profile, const std::string& where);

/// Times and memory of a device nobody has measured, from its data sheet and the efficiency of the
/// nearest measured one; every output that uses it says "analytic".
Profile analytic_profile(const ModelSpec& model, const ClusterSpec& cluster);

}  // namespace hydraulis
