#include "costmodel/operator_profile.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "base/error.h"
#include "costmodel/scheme.h"

namespace hydraulis {
namespace {

constexpr std::array<const char*, kKernels> kKernelNames = {"gemm_forward",
                                                            "gemm_input_gradient",
                                                            "gemm_weight_gradient",
                                                            "rms_norm",
                                                            "rms_norm_backward",
                                                            "rotary_table",
                                                            "rotary",
                                                            "attention",
                                                            "attention_delta",
                                                            "attention_backward",
                                                            "swiglu",
                                                            "swiglu_backward",
                                                            "embedding",
                                                            "embedding_backward",
                                                            "cross_entropy_max",
                                                            "cross_entropy_sums",
                                                            "cross_entropy_backward",
                                                            "add",
                                                            "convert",
                                                            "zero",
                                                            "sum_squares",
                                                            "adamw"};
constexpr std::array<const char*, kCollectives> kCollectiveNames = {
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "send"};
constexpr std::array<const char*, kCopyDirections> kDirectionNames = {
    "host_to_device", "device_to_host", "device_to_device"};
constexpr std::array<const char*, kCorrectedTimes> kCorrectedNames = {
    "forward",          "backward",      "gather_parameters",
    "reduce_gradients", "gradient_norm", "optimizer_step"};

constexpr std::int64_t kMostSize = std::int64_t{1} << 48;

template <typename Enum, std::size_t n>
Enum parse(const std::array<const char*, n>& names, std::string_view text,
           const std::string& where) {
  for (std::size_t i = 0; i < n; ++i) {
    if (text == names[i]) return static_cast<Enum>(i);
  }
  throw InputError("{}: '{}' is not known; expected one of {}", where, text,
                   fmt::join(names, ", "));
}

/// Checks the fields of one row; messages begin with the file and end with what was expected.
struct RowCheck {
  const std::string& where;
  std::string row;  ///< "kernels[3]"

  void number(const char* field, double value, bool positive) const {
    if (std::isfinite(value) && value >= 0 && (!positive || value > 0)) return;
    throw InputError("{}: field '{}.{}' is {}, expected a finite number {}", where, row, field,
                     value, positive ? "more than 0" : "of 0 or more");
  }
  void size(const char* field, std::int64_t value, std::int64_t least) const {
    if (value >= least && value <= kMostSize) return;
    throw InputError("{}: field '{}.{}' is {}, expected {} to {}", where, row, field, value, least,
                     kMostSize);
  }
  void timing(const Timing& time) const {
    number("time.median_seconds", time.median_seconds, true);
    number("time.low_seconds", time.low_seconds, false);
    number("time.high_seconds", time.high_seconds, false);
    size("time.repeats", time.repeats, 1);
    if (time.low_seconds > time.median_seconds || time.high_seconds < time.median_seconds) {
      throw InputError(
          "{}: field '{}.time' has quantiles {} and {} around a median of {}, expected low ≤ "
          "median ≤ high",
          where, row, time.low_seconds, time.high_seconds, time.median_seconds);
    }
  }
};

bool is_gemm(Kernel kernel) { return kernel <= Kernel::gemm_weight_gradient; }

void check_kernel(const RowCheck& check, const KernelSample& sample) {
  const KernelShape& shape = sample.shape;
  if (is_gemm(shape.kernel)) {
    check.size("inputs", shape.inputs, 1);
    check.size("outputs", shape.outputs, 1);
  } else if (is_attention(shape.kernel)) {
    check.size("heads", shape.heads, 1);
    check.size("kv_heads", shape.kv_heads, 1);
    check.size("head_dim", shape.head_dim, 1);
    check.size("length", sample.length, 1);
  } else {
    check.size("width", shape.width, 1);
  }
  check.size("tokens", sample.tokens, 1);
  check.size("allocated_bytes", sample.allocated_bytes, 0);
  if (is_attention(shape.kernel) && sample.length > sample.tokens) {
    throw InputError("{}: field '{}.length' is {}, expected at most the {} tokens of the pack",
                     check.where, check.row, sample.length, sample.tokens);
  }
  check.timing(sample.time);
}

}  // namespace

bool is_attention(Kernel kernel) {
  return kernel == Kernel::attention || kernel == Kernel::attention_backward;
}

const char* to_string(Kernel kernel) { return kKernelNames.at(static_cast<std::size_t>(kernel)); }
const char* to_string(Collective operation) {
  return kCollectiveNames.at(static_cast<std::size_t>(operation));
}
const char* to_string(CopyDirection direction) {
  return kDirectionNames.at(static_cast<std::size_t>(direction));
}
const char* to_string(CorrectedTime time) {
  return kCorrectedNames.at(static_cast<std::size_t>(time));
}

Kernel parse_kernel(std::string_view text, const std::string& where) {
  return parse<Kernel>(kKernelNames, text, where);
}
Collective parse_collective(std::string_view text, const std::string& where) {
  return parse<Collective>(kCollectiveNames, text, where);
}
CopyDirection parse_copy_direction(std::string_view text, const std::string& where) {
  return parse<CopyDirection>(kDirectionNames, text, where);
}

CorrectedTime parse_corrected_time(std::string_view text, const std::string& where) {
  return parse<CorrectedTime>(kCorrectedNames, text, where);
}

double correction(const OperatorProfile& profile, CorrectedTime time, const std::string& scheme) {
  double factor = 1;
  for (const Correction& known : profile.corrections) {
    if (known.time != time) continue;
    if (known.scheme == scheme) return known.factor;
    if (known.scheme.empty()) factor = known.factor;
  }
  return factor;
}

std::string to_string(const KernelShape& shape) {
  if (is_gemm(shape.kernel)) {
    return fmt::format("{} {}→{}", to_string(shape.kernel), shape.inputs, shape.outputs);
  }
  if (is_attention(shape.kernel)) {
    return fmt::format("{} {}/{} heads of {}", to_string(shape.kernel), shape.heads, shape.kv_heads,
                       shape.head_dim);
  }
  return fmt::format("{} of {}", to_string(shape.kernel), shape.width);
}

void check_operator_profile(const OperatorProfile& profile, const std::string& where) {
  // Imported collectives have no kernels beside them, a single rank no collectives.
  if (profile.kernels.empty() && profile.collectives.empty()) {
    throw InputError("{}: fields 'kernels' and 'collectives' are empty", where);
  }
  for (std::size_t i = 0; i < profile.kernels.size(); ++i) {
    check_kernel({where, fmt::format("kernels[{}]", i)}, profile.kernels[i]);
  }
  for (std::size_t i = 0; i < profile.collectives.size(); ++i) {
    const CollectiveSample& sample = profile.collectives[i];
    const RowCheck check{where, fmt::format("collectives[{}]", i)};
    check.size("ranks", sample.ranks, 2);
    check.size("nodes", sample.nodes, 1);
    check.size("bytes", sample.bytes, 1);
    if (sample.nodes > sample.ranks || sample.ranks % sample.nodes != 0) {
      throw InputError("{}: field '{}.nodes' is {}, expected a divisor of the {} ranks", where,
                       check.row, sample.nodes, sample.ranks);
    }
    check.timing(sample.time);
  }
  for (std::size_t i = 0; i < profile.copies.size(); ++i) {
    const RowCheck check{where, fmt::format("copies[{}]", i)};
    check.size("bytes", profile.copies[i].bytes, 1);
    check.timing(profile.copies[i].time);
  }
  for (std::size_t i = 0; i < profile.ranks.size(); ++i) {
    const RowCheck check{where, fmt::format("ranks[{}]", i)};
    check.size("rank", profile.ranks[i].rank, 0);
    check.number("flops", profile.ranks[i].flops, true);
    check.number("copy_bytes_per_second", profile.ranks[i].copy_bytes_per_second, true);
  }
  for (std::size_t i = 0; i < profile.corrections.size(); ++i) {
    const RowCheck check{where, fmt::format("corrections[{}]", i)};
    check.number("factor", profile.corrections[i].factor, true);
    const std::string& scheme = profile.corrections[i].scheme;
    if (!scheme.empty()) parse_scheme(scheme, fmt::format("{}: corrections[{}]", where, i));
  }
  const RowCheck machine{where, "machine"};
  const MachineDescription& of = profile.machine;
  if (of.device.empty()) throw InputError("{}: field 'machine.device' is empty", where);
  machine.size("cores", of.cores, 0);
  machine.size("threads_per_rank", of.threads_per_rank, 0);
  machine.size("ranks", of.ranks, 1);
  machine.size("nodes", of.nodes, 1);
  machine.number("memory_bytes", of.memory_bytes, false);
  machine.number("clock_hertz", of.clock_hertz, false);
  machine.number("peak_flops", of.peak_flops, false);
  machine.number("memory_bytes_per_second", of.memory_bytes_per_second, false);
}

}  // namespace hydraulis
