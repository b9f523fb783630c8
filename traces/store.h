#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "traces/length_trace.h"

namespace hydraulis {

/// The HDF5 form of a trace, version 1:
///
///   /lengths          uint32, one-dimensional, chunked, shuffled and deflated; tokens of each
///                     document in corpus order, none of them 0
///   attributes of "/":
///     format          text     "hydraulis-length-trace"
///     version         integer  1
///     source          text     where the lengths come from
///     tokenizer       text     what a token is
///     sequences       integer  number of elements of /lengths
///     tokens          integer  their sum
///     empty_documents integer  documents of length 0 that were left out
///     origin          text     optional: how the lengths were made
///     licence         text     optional: terms for passing them on
inline constexpr const char* kTraceFormat = "hydraulis-length-trace";
inline constexpr int kTraceVersion = 1;

/// Writes a trace piece by piece in constant memory; the file appears when finish() returns and
/// not at all otherwise.
class TraceWriter {
 public:
  explicit TraceWriter(const std::filesystem::path& target);
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;
  ~TraceWriter();

  /// Lengths in tokens, each at least 1.
  void append(std::span<const std::uint32_t> lengths);
  /// Writes the attributes from `info` (its lengths are ignored) and puts the file in place.
  void finish(const LengthTrace& info);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Writes a whole trace. Throws InputError naming the file.
void write_trace(const std::filesystem::path& target, const LengthTrace& trace);

/// Reads a trace file; one that is not a trace, is of another version, or whose attributes
/// contradict its data is refused with the reason (InputError).
LengthTrace read_trace(const std::filesystem::path& path);

}  // namespace hydraulis
