#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace hydraulis {

/// A framed record of an event file: length, masked CRC-32C of the length, data, masked CRC-32C of
/// the data.
std::string tensorboard_record(const std::string& data);

/// Numbers by step, in a file that TensorBoard reads. Every call is on its way to the disk when it
/// returns. Throws InputError on a failed write.
class TensorboardWriter {
 public:
  /// Begins `events.out.tfevents.SECONDS.NAME` in the folder, which is made if need be; a run that
  /// resumes begins another file, and TensorBoard shows the two as one.
  TensorboardWriter(const std::filesystem::path& folder, double wall_time_seconds,
                    const std::string& name);
  TensorboardWriter(const TensorboardWriter&) = delete;
  TensorboardWriter& operator=(const TensorboardWriter&) = delete;
  ~TensorboardWriter();

  void write(double wall_time_seconds, std::int64_t step,
             const std::vector<std::pair<std::string, double>>& scalars);
  const std::filesystem::path& path() const { return path_; }

 private:
  void append(const std::string& record);
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace hydraulis
