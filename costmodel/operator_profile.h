#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hydraulis {

/// Repeated measurement of one thing, in seconds.
struct Timing {
  double median_seconds = 0;
  double low_seconds = 0;   ///< 10 % quantile
  double high_seconds = 0;  ///< 90 % quantile
  int repeats = 0;
  bool steady = true;  ///< false: the confidence interval was still wide when a limit was reached
};

/// Compute kernels that training calls, one for each call of kernels/compute.h that differs in what
/// its time depends on.
enum class Kernel : std::uint8_t {
  gemm_forward,            ///< y[T, outputs] = x[T, inputs]·wᵀ
  gemm_input_gradient,     ///< dx[T, inputs] = dy[T, outputs]·w
  gemm_weight_gradient,    ///< dw[outputs, inputs] += dyᵀ·x
  rms_norm,                ///< T rows of `width`
  rms_norm_backward,       ///< the same, weight gradient included
  rotary_table,            ///< T positions of `width` = head size
  rotary,                  ///< T rows of `width` columns (heads·head size), either direction
  attention,               ///< T query rows in sequences of `length`: heads, kv_heads, head_dim
  attention_delta,         ///< T rows of `width` = heads·head size
  attention_backward,      ///< as attention
  swiglu,                  ///< T rows of `width` = feed-forward channels f (input 2f)
  swiglu_backward,         ///< the same
  embedding,               ///< T rows of `width` looked up
  embedding_backward,      ///< T rows of `width` added
  cross_entropy_max,       ///< T rows of `width` = vocabulary of this device
  cross_entropy_sums,      ///< the same
  cross_entropy_backward,  ///< the same
  add,                     ///< T rows of `width`
  convert,                 ///< T rows of `width`, copies inside device memory included
  zero,                    ///< T rows of `width` set to zero
  sum_squares,             ///< T rows of `width`
  adamw,                   ///< T rows of `width` parameters
};
inline constexpr int kKernels = static_cast<int>(Kernel::adamw) + 1;

/// What of a kernel call does not change from micro-batch to micro-batch. Sizes that the kernel
/// does not have stay 0. All are of one device, after tensor parallelism.
struct KernelShape {
  Kernel kernel = Kernel::gemm_forward;
  std::int64_t inputs = 0;   ///< gemm: columns of x
  std::int64_t outputs = 0;  ///< gemm: columns of y
  std::int64_t width = 0;    ///< row-wise kernels: columns
  int heads = 0;             ///< attention
  int kv_heads = 0;          ///< attention
  int head_dim = 0;          ///< attention

  bool operator==(const KernelShape&) const = default;
};

/// One measured point of a kernel.
struct KernelSample {
  KernelShape shape;
  std::string data_type = "f32";  ///< of its matrices: "f32", "f64", "bf16"
  std::int64_t tokens = 0;        ///< rows T
  /// Attention: length of each sequence of the pack, so Σs² = tokens·length; causal. 0 elsewhere.
  std::int64_t length = 0;
  Timing time;
  std::int64_t allocated_bytes = 0;  ///< device memory that the call took beyond its arguments
};

/// Collective and point-to-point operations.
enum class Collective : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  send,  ///< one message from one rank to another, one way
};
inline constexpr int kCollectives = static_cast<int>(Collective::send) + 1;

/// One measured point of a collective.
struct CollectiveSample {
  Collective operation = Collective::all_reduce;
  int ranks = 0;  ///< in the group; 2 for send
  int nodes = 1;  ///< that the group spans, evenly
  /// Total size as nccl-tests counts it: all-reduce, broadcast, send: the buffer; all-gather and
  /// reduce-scatter: the whole (ranks · the part of each); all-to-all: what one rank hands over,
  /// its own part included.
  std::int64_t bytes = 0;
  Timing time;
  bool checked = false;  ///< the data that came out was compared with what had to come out
  std::string imported_from = {};  ///< file of nccl-tests output; empty: measured with the profile
};

enum class CopyDirection : std::uint8_t { host_to_device, device_to_host, device_to_device };
inline constexpr int kCopyDirections = 3;

struct CopySample {
  CopyDirection direction = CopyDirection::host_to_device;
  std::int64_t bytes = 0;
  Timing time;
};

/// Device memory that belongs to no tensor, in bytes; negative: not measured.
struct MemoryConstants {
  std::int64_t process_bytes = -1;    ///< taken by a rank before its first tensor
  std::int64_t workspace_bytes = -1;  ///< taken by kernels and communicators beyond arguments
};

/// Where and with what it was measured.
struct MachineDescription {
  std::string device;        ///< short name, as a cluster's device.name: "cpu", "a800"
  std::string backend;       ///< "cpu" or "cuda"
  std::string processor;     ///< as the system names it
  std::string host;          ///< may be empty
  int cores = 0;             ///< that the job could use on a node
  int threads_per_rank = 0;  ///< of the kernels
  int ranks = 0;             ///< that measured, all at the same time
  int nodes = 1;
  double memory_bytes = 0;             ///< of a device
  double clock_hertz = 0;              ///< 0: not known
  double peak_flops = 0;               ///< ceiling used to refuse impossible points; 0: none
  double memory_bytes_per_second = 0;  ///< ceiling of the same kind; 0: none
  std::string date;                    ///< ISO 8601
  std::vector<std::pair<std::string, std::string>> software;  ///< name, version
};

/// How fast one rank is while all of them work: what tells a slow device or node.
struct RankSpeed {
  int rank = 0;
  std::string host;
  double flops = 0;                  ///< of a matrix product
  double copy_bytes_per_second = 0;  ///< of a large copy in its memory, read and written
};

/// A point that was measured and not used, or could not be measured.
struct ExcludedPoint {
  std::string what;    ///< "all_reduce, 2 ranks, 1073741824 bytes"
  std::string reason;  ///< "2 values differ from the sum"
};

/// Times of whole instructions that runs were seen to take otherwise than composed.
enum class CorrectedTime : std::uint8_t {
  forward,
  backward,
  gather_parameters,
  reduce_gradients,
  gradient_norm,
  optimizer_step,
};
inline constexpr int kCorrectedTimes = static_cast<int>(CorrectedTime::optimizer_step) + 1;

/// What a time is multiplied by: measured over predicted (`hydraulis diff --refit`).
struct Correction {
  CorrectedTime time = CorrectedTime::forward;
  /// Forward and backward: "(1,2,1)", or empty for schemes that no run was seen with. Others:
  /// empty.
  std::string scheme;
  double factor = 1;
};

/// Raw measurements of a machine: plain data, filled by the profiler or an importer. Fits are made
/// from it (costmodel/fit.h) and stored beside it.
struct OperatorProfile {
  std::string name;
  std::string origin;  ///< source of the numbers, for people
  MachineDescription machine;
  std::vector<KernelSample> kernels;
  std::vector<CollectiveSample> collectives;
  std::vector<CopySample> copies;
  MemoryConstants memory;
  std::vector<RankSpeed> ranks;  ///< may be empty
  std::vector<ExcludedPoint> excluded;
  std::vector<std::string> notes;  ///< what people should know: clocks, spread, what was skipped
  std::vector<Correction> corrections = {};  ///< one a time and scheme
};

/// Whether the kernel's time depends on sequence lengths (heads, kv_heads and head_dim are set).
bool is_attention(Kernel kernel);

const char* to_string(Kernel kernel);
const char* to_string(Collective operation);
const char* to_string(CopyDirection direction);
const char* to_string(CorrectedTime time);
/// The inverse; throws InputError naming `where` and what is known.
Kernel parse_kernel(std::string_view text, const std::string& where);
Collective parse_collective(std::string_view text, const std::string& where);
CopyDirection parse_copy_direction(std::string_view text, const std::string& where);
CorrectedTime parse_corrected_time(std::string_view text, const std::string& where);
/// "gemm_forward 512→1536", "attention 8/8 heads of 64", "rms_norm of 512".
std::string to_string(const KernelShape& shape);

/// The factor of a time: of this scheme, else of any, else 1.
double correction(const OperatorProfile& profile, CorrectedTime time,
                  const std::string& scheme = "");

/// Throws InputError naming the field ("kernels[3].time.median_seconds") when a number is not
/// finite, negative, or a size that cannot be; `where` names the file.
void check_operator_profile(const OperatorProfile& profile, const std::string& where);

/// The HDF5 form (docs/formats.md, "Profile"), raw samples with their fits and residuals; fits are
/// made on writing. Throws InputError.
void write_operator_profile(const OperatorProfile& profile, const std::filesystem::path& path);
/// Throws InputError; a profile of whole stages is refused as such.
OperatorProfile read_operator_profile(const std::filesystem::path& path);

}  // namespace hydraulis
