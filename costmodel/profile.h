#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/cluster_spec.h"
#include "costmodel/model_spec.h"
#include "costmodel/scheme.h"

namespace hydraulis {

struct MeasuredOperators;  // costmodel/compose.h

/// Time of one micro-batch on one pipeline stage or a part of it:
/// seconds = a·Σs² + b·Σs + c, sequence lengths s in tokens.
struct StageCost {
  double a = 0;  ///< seconds per token²
  double b = 0;  ///< seconds per token
  double c = 0;  ///< seconds per micro-batch

  double of(double sum_squares, double sum_tokens) const {
    return a * sum_squares + b * sum_tokens + c;
  }
  double of_sequence(double length) const { return (a * length + b) * length; }
};

/// What a stage's time is made of, where operators were measured. Forward and backward of one
/// layer; of what every stage has, the first (embedding) and the last (head and cross entropy).
struct StageParts {
  struct Part {
    StageCost forward;
    StageCost backward;
  };
  Part layer;
  Part stage;
  Part first;
  Part last;
};

/// Measured or derived time of one micro-batch on one stage of a scheme (forward and backward):
/// seconds = a·Σs² + b·Σs + c. With `parts`, a, b and c are the largest over the stages.
struct SchemeCoefficients {
  Scheme scheme;
  double a = 0;  ///< seconds per token²
  double b = 0;  ///< seconds per token
  double c = 0;  ///< seconds per micro-batch
  std::optional<StageParts> parts = {};
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
  /// Of a profile of operators: the measurements and their fits. `schemes` and `model` are empty
  /// until make_cost_model() composes them for a model and a cluster.
  std::shared_ptr<const MeasuredOperators> operators = {};
  /// Range of the measurements behind composed times: tokens of a micro-batch on one device and
  /// tokens of a sequence on one device. 0: not known.
  double measured_tokens = 0;
  double measured_length = 0;
};

/// A preset shipped with the project ("a800-llama-32b", …) or an HDF5 file, of whole stages or of
/// operators. Throws InputError.
Profile load_profile(const std::string& preset_or_path);
/// Writes the HDF5 form of whole stages (docs/formats.md, "Profile"), without `parts`. Throws
/// InputError.
void write_profile(const Profile& profile, const std::filesystem::path& path);

/// Throws InputError naming the field when a number is not finite, negative, or of a scheme that
/// cannot be; `where` names the file. load_profile and write_profile call it.
void check_profile(const Profile& profile, const std::string& where);

/// Times and memory of a device nobody has measured, from its data sheet and the efficiency of the
/// nearest measured one; every output that uses it says "analytic".
Profile analytic_profile(const ModelSpec& model, const ClusterSpec& cluster);

}  // namespace hydraulis
