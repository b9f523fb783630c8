// Importing a Megatron index of 10 million documents: the file is made in a temporary folder first.
#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/random.h"
#include "traces/import/import.h"

namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "hydraulis-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ec;
    fs::remove_all(path_, ec);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

template <typename T>
class ArrayWriter {
 public:
  explicit ArrayWriter(std::ofstream& out) : out_(out) {}
  ~ArrayWriter() { flush(); }
  void put(T value) {
    block_.push_back(value);
    if (block_.size() == 65536) flush();
  }

 private:
  void flush() {
    out_.write(reinterpret_cast<const char*>(block_.data()),
               static_cast<std::streamsize>(block_.size() * sizeof(T)));
    block_.clear();
  }
  std::ofstream& out_;
  std::vector<T> block_;
};

/// One sequence a document, lengths spread like those of web pages; drawn twice instead of kept.
void write_index(const fs::path& path, std::uint64_t documents) {
  std::ofstream out(path, std::ios::binary);
  out.write("MMIDIDX\0\0", 9);
  const std::uint64_t version = 1;
  const std::uint8_t type = 8;
  const std::uint64_t entries = documents + 1;
  out.write(reinterpret_cast<const char*>(&version), 8);
  out.write(reinterpret_cast<const char*>(&type), 1);
  out.write(reinterpret_cast<const char*>(&documents), 8);
  out.write(reinterpret_cast<const char*>(&entries), 8);
  const auto draw = [](hydraulis::Random& random) {
    return static_cast<std::int32_t>(16 + random.below(std::uint64_t{16} << random.below(9)));
  };
  {
    hydraulis::Random random(1);
    ArrayWriter<std::int32_t> lengths(out);
    for (std::uint64_t i = 0; i < documents; ++i) lengths.put(draw(random));
  }
  ArrayWriter<std::int64_t> values(out);
  hydraulis::Random random(1);
  std::int64_t pointer = 0;
  for (std::uint64_t i = 0; i < documents; ++i) {
    values.put(pointer);
    pointer += 2 * draw(random);
  }
  for (std::uint64_t i = 0; i <= documents; ++i) values.put(static_cast<std::int64_t>(i));
}

void import_idx(benchmark::State& state) {
  const Folder folder;
  const auto documents = static_cast<std::uint64_t>(state.range(0));
  hydraulis::ImportOptions options;
  options.input = folder.path() / "corpus.idx";
  write_index(options.input, documents);
  for (auto _ : state) {
    const auto report = hydraulis::import_trace(options, folder.path() / "corpus.h5");
    if (report.sequences() != documents) state.SkipWithError("wrong number of sequences");
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  state.counters["peak_MB"] = static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
  state.counters["documents_per_second"] = benchmark::Counter(
      static_cast<double>(documents), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(import_idx)
    ->Arg(10'000'000)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();

}  // namespace
