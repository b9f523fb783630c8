#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/atomic_file.h"
#include "base/error.h"
#include "planner/program/timeline.h"
#include "planner/program/timeline_check.h"

namespace hydraulis {
namespace {

/// Text on its way to a plain or gzip file through a buffer of fixed size.
class TextSink {
 public:
  TextSink(const std::filesystem::path& file, const std::filesystem::path& shown, bool compressed)
      : shown_(shown) {
    if (compressed) {
      gzip_ = gzopen(file.c_str(), "wb6");
    } else {
      plain_ = std::fopen(file.c_str(), "wb");
    }
    if (gzip_ == nullptr && plain_ == nullptr) fail();
    buffer_.reserve(kFlushAt + 4096);
  }
  TextSink(const TextSink&) = delete;
  TextSink& operator=(const TextSink&) = delete;
  ~TextSink() {
    if (gzip_ != nullptr) gzclose(gzip_);
    if (plain_ != nullptr) std::fclose(plain_);
  }

  /// Where to append; call flush_if_full() now and then.
  std::string& text() { return buffer_; }

  void flush_if_full() {
    if (buffer_.size() >= kFlushAt) flush();
  }

  void close() {
    flush();
    const bool done = gzip_ != nullptr ? gzclose(std::exchange(gzip_, nullptr)) == Z_OK
                                       : std::fclose(std::exchange(plain_, nullptr)) == 0;
    if (!done) fail();
  }

 private:
  static constexpr std::size_t kFlushAt = 1u << 18;

  void flush() {
    if (buffer_.empty()) return;
    const auto size = static_cast<unsigned>(buffer_.size());
    const bool done = gzip_ != nullptr
                          ? gzwrite(gzip_, buffer_.data(), size) == static_cast<int>(size)
                          : std::fwrite(buffer_.data(), 1, size, plain_) == size;
    if (!done) fail();
    buffer_.clear();
  }
  [[noreturn]] void fail() const {
    throw InputError("{}: cannot be written; is the disk full?", shown_.string());
  }

  std::filesystem::path shown_;
  std::string buffer_;
  gzFile gzip_ = nullptr;
  std::FILE* plain_ = nullptr;
};

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

/// "0-7,16" from sorted or unsorted device numbers, runs in the order they stand.
std::string device_list(const std::vector<int>& devices) {
  std::string text;
  for (std::size_t i = 0; i < devices.size();) {
    std::size_t end = i + 1;
    while (end < devices.size() && devices[end] == devices[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += end - i > 1 ? fmt::format("{}-{}", devices[i], devices[end - 1])
                        : fmt::format("{}", devices[i]);
    i = end;
  }
  return text;
}

void write_metadata(const Timeline& timeline, TextSink& sink, bool& first) {
  std::vector<std::array<bool, kStreams>> used(timeline.tracks.size());
  for (const TimelineEvent& event : timeline.events) {
    used[event.stage][static_cast<int>(event.stream)] = true;
  }
  const auto add = [&](std::size_t pid, int tid, const char* name, const std::string& argument) {
    fmt::format_to(std::back_inserter(sink.text()),
                   "{}\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"{}\",\"args\":{{{}}}}}",
                   std::exchange(first, false) ? "" : ",", pid, tid, name, argument);
  };
  for (std::size_t stage = 0; stage < timeline.tracks.size(); ++stage) {
    const TimelineTrack& track = timeline.tracks[stage];
    const std::string name =
        fmt::format("pipeline {} {} stage {} (devices {})", track.pipeline, track.scheme,
                    track.stage_in_pipeline, device_list(track.devices));
    add(stage, 0, "process_name", "\"name\":" + quoted(name));
    add(stage, 0, "process_sort_index", fmt::format("\"sort_index\":{}", stage));
    for (int stream = 0; stream < kStreams; ++stream) {
      if (!used[stage][stream]) continue;
      add(stage, stream, "thread_name",
          fmt::format("\"name\":\"{}\"", to_string(static_cast<StreamKind>(stream))));
      add(stage, stream, "thread_sort_index", fmt::format("\"sort_index\":{}", stream));
    }
    sink.flush_if_full();
  }
}

void write_event(const TimelineEvent& event, TextSink& sink, bool& first) {
  const std::int64_t start = detail::nanoseconds(event.start_seconds);
  const std::int64_t duration = detail::nanoseconds(event.end_seconds) - start;
  auto out = std::back_inserter(sink.text());
  fmt::format_to(out, "{}\n{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"name\":\"{}",
                 std::exchange(first, false) ? "" : ",", event.stage,
                 static_cast<int>(event.stream), to_string(event.op));
  if (event.micro_batch >= 0) fmt::format_to(out, " {}", event.micro_batch);
  fmt::format_to(out,
                 "\",\"cat\":\"{}\",\"ts\":{}.{:03},\"dur\":{}.{:03},\"args\":{{\"iteration\":{},"
                 "\"instruction\":{}",
                 to_string(event.stream), start / 1000, start % 1000, duration / 1000,
                 duration % 1000, event.iteration, event.instruction);
  if (event.micro_batch >= 0) fmt::format_to(out, ",\"micro_batch\":{}", event.micro_batch);
  if (event.bytes > 0) {
    fmt::format_to(out, ",\"bytes\":{}", event.bytes);
    // A transfer of no time has no rate; infinity is not JSON.
    if (duration > 0) {
      fmt::format_to(out, ",\"gigabytes_per_second\":{:.6g}",
                     static_cast<double>(event.bytes) / static_cast<double>(duration));
    }
  }
  sink.text() += "}}";
  sink.flush_if_full();
}

}  // namespace

std::uint64_t write_chrome_trace(const Timeline& timeline, const std::filesystem::path& path) {
  const std::vector<std::uint32_t> order = detail::check_and_order(timeline);
  AtomicFile file(path);
  TextSink sink(file.temporary(), path, path.extension() == ".gz");
  sink.text() += fmt::format(
      "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"origin\":{},\"model\":{}}},\"traceEvents\":[",
      quoted(timeline.origin), quoted(timeline.model_name));
  bool first = true;
  write_metadata(timeline, sink, first);
  for (std::size_t i = 0; i < timeline.events.size(); ++i) {
    write_event(timeline.events[order.empty() ? i : order[i]], sink, first);
  }
  sink.text() += "\n]}\n";
  sink.close();
  const std::uint64_t bytes = std::filesystem::file_size(file.temporary());
  file.commit();
  return bytes;
}

}  // namespace hydraulis
