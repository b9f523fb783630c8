#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodel/model_spec.h"
#include "costmodel/public_parameters.h"
#include "costmodel/scheme.h"

namespace hydraulis {

/// One published measurement: a model trained with equal sequences on pipelines that are all alike.
struct PublicRow {
  int line = 0;            ///< of the file
  std::string model_name;  ///< what `--leave-one-out model` groups by
  std::string layout;      ///< for people
  ModelSpec model;         ///< vocab 0: the device's; two-matrix MLPs as gated ones of equal size
  int tp = 1;
  int cp = 1;
  int pp = 1;
  int dp = 1;
  int interleave = 1;                     ///< model chunks a stage
  int micro_batch = 1;                    ///< sequences
  int micro_batches = 1;                  ///< a pipeline and iteration
  int sequence_length = 0;                ///< tokens
  std::optional<Recompute> recompute;     ///< else the device's
  std::optional<bool> sequence_parallel;  ///< else the device's
  double measured_seconds = 0;
  std::optional<double> measured_bytes;  ///< allocated at most on a device

  int devices() const { return tp * cp * pp * dp; }
};

struct PublicRows {
  std::string path;
  std::vector<PublicRow> rows;
  std::vector<std::string> unused_columns;
  std::string device;  ///< that the rows look like
};

/// Reads published measurements. Columns (docs/formats.md): layers, hidden, heads, sequence_length,
/// tp, pp, dp, micro_batch, global_batch, iteration_ms; and if need be gpus, cp, interleave,
/// kv_heads, ffn_hidden, gated, vocab, recompute, sequence_parallel, allocated_gib, model,
/// params_billion. A file with a column `case` names layouts as SimuMax does
/// ("llama3_70b_l12_tp1_pp2_dp4_mbc4") beside measured_ms and measured_alloc_gib. Throws InputError
/// with file, line and column.
PublicRows read_public_rows(const std::string& path);

/// Reads the table of an nccl-tests run as CSV: the columns size(B) and the first time(ns), a row
/// a size, ascending. Throws InputError with file, line and column.
AllReduceCurve read_all_reduce_table(const std::string& path, int devices);

/// The columns that --leave-one-out knows, and the group of a row by one of them.
std::vector<std::string> group_columns();
std::string group_of(const PublicRow& row, const std::string& column);

}  // namespace hydraulis
