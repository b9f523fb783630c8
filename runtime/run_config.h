#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/json.h"
#include "costmodel/cost_model.h"
#include "kernels/matrix.h"
#include "runtime/learning_rate.h"
#include "runtime/train_step.h"

namespace hydraulis {

/// What becomes of a step whose loss or gradient norm is not finite, or whose loss jumps.
enum class BadStep : std::uint8_t { skip, stop };

/// Where a run trains.
enum class RunDevice : std::uint8_t { cpu, cuda };

/// RUN.json of `hydraulis train`. Paths are relative to the file's folder.
///
///   {"plan": "plan.json", "output": "runs/example", "steps": 200, "seed": 1,
///    "data": {…}, "policy": "hydraulis", "device": "cpu", "precision": "f32",
///    "optimizer_states": "device",
///    "optimizer": {"name": "adamw", "learning_rate": 3e-4, "beta1": 0.9, "beta2": 0.95,
///                  "epsilon": 1e-8, "weight_decay": 0.1, "clip_norm": 1.0},
///    "schedule": {"decay": "cosine", "warmup_steps": 20, "decay_steps": 200,
///                 "minimum_learning_rate": 3e-5},
///    "initial": "folder of a Hugging Face model", "validation": {"every_steps": 50, "batches": 4},
///    "checkpoint": {"every_steps": 100, "keep": 2},
///    "bad_steps": {"policy": "skip", "spike_factor": 3, "window": 64, "most_in_a_row": 10},
///    "threads": 0, "memory_limit_gib": 0, "timeout_seconds": 60, "timeline_steps": 0}
///
/// Only plan, output, steps and data are required. device: cpu or cuda. precision: f32 (the
/// default) or f64 on the CPU, bf16 on GPUs, beside f32 masters, gradients and statistics.
/// optimizer_states: device or, with GPUs, host (costmodel/host_states.h); the plan's when left
/// out.
struct RunConfig {
  std::filesystem::path file;
  std::filesystem::path plan;
  std::filesystem::path output;
  std::filesystem::path initial;  ///< empty: random weights
  std::int64_t steps = 0;         ///< iterations, those of a resumed run included
  std::uint64_t seed = 0;
  Json data;  ///< settings of the training data
  std::string policy = "hydraulis";
  RunDevice device = RunDevice::cpu;
  DataType type = DataType::f32;                    ///< bf16 on GPUs
  std::optional<OptimizerStates> optimizer_states;  ///< unset: as the plan has them
  UpdateSettings update;
  LearningRate learning_rate;
  std::int64_t validate_every = 0;  ///< 0: never
  std::int64_t validation_batches = 1;
  std::int64_t checkpoint_every = 0;  ///< 0: only at the end and when stopped
  int keep_checkpoints = 2;
  BadStep bad_step = BadStep::skip;
  double spike_factor = 0;  ///< times the median of the last `spike_window` losses; 0: off
  std::int64_t spike_window = 64;
  std::int64_t most_bad_steps = 10;  ///< in a row, before the run stops
  int threads = 0;
  double memory_limit_bytes = 0;  ///< 0: the plan's device memory
  double timeout_seconds = 60;
  std::int64_t timeline_steps = 0;  ///< first steps kept in timeline.h5 and programs/
};

/// Throws InputError naming the field.
RunConfig load_run_config(const std::filesystem::path& file);

}  // namespace hydraulis
