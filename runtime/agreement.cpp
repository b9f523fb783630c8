#include "runtime/agreement.h"

#include <algorithm>
#include <optional>

#include "kernels/cpu/stream.h"

namespace hydraulis {

void together(Communicator& hosts, const std::function<void()>& work) {
  std::optional<Error> failed;
  try {
    work();
  } catch (const Error& error) {
    failed = error;
  }
  // By rank: its exit code.
  std::vector<double> codes(hosts.size(), 0.0);
  if (failed) codes[hosts.rank()] = static_cast<double>(failed->code());
  cpu::CpuStream stream;
  hosts.all_reduce(codes.data(), hosts.size(), DataType::f64, Reduction::max, stream);
  stream.drain();
  const auto first = std::find_if(codes.begin(), codes.end(), [](double c) { return c > 0; });
  if (first == codes.end()) return;
  const auto code = static_cast<ExitCode>(static_cast<int>(*first));
  if (first - codes.begin() != hosts.rank()) throw AgreedError(code, "another rank failed", false);
  const bool everywhere = std::all_of(codes.begin(), codes.end(), [](double c) { return c > 0; });
  const std::string what = failed->what();
  throw AgreedError(code, everywhere ? what : fmt::format("rank {}: {}", hosts.rank(), what), true);
}

std::vector<std::uint8_t> broadcast_bytes(const Backend& backend, std::vector<std::uint8_t> bytes) {
  cpu::CpuStream stream;
  auto size = static_cast<std::int64_t>(bytes.size());
  backend.hosts().broadcast(&size, sizeof(size), 0, stream);
  stream.drain();
  bytes.resize(size);
  backend.hosts().broadcast(bytes.data(), size, 0, stream);
  stream.drain();
  return bytes;
}

std::vector<std::string> gather_texts(const Backend& backend, const std::string& mine) {
  cpu::CpuStream stream;
  const auto longest =
      static_cast<std::int64_t>(max_over_ranks(backend, static_cast<double>(mine.size())));
  // Ended by a zero, padded to whole numbers of the gathered type.
  const std::int64_t width = longest / 8 + 1;
  std::string padded = mine;
  padded.resize(width * 8, '\0');
  const int ranks = backend.world->size();
  std::string all(width * 8 * ranks, '\0');
  backend.hosts().all_gather(padded.data(), all.data(), width, DataType::f64, stream);
  stream.drain();
  std::vector<std::string> texts;
  for (int rank = 0; rank < ranks; ++rank) {
    texts.emplace_back(all.c_str() + static_cast<std::ptrdiff_t>(rank * width * 8));
  }
  return texts;
}

double max_over_ranks(const Backend& backend, double value) {
  cpu::CpuStream stream;
  backend.hosts().all_reduce(&value, 1, DataType::f64, Reduction::max, stream);
  stream.drain();
  return value;
}

void sum_over_ranks(const Backend& backend, std::span<double> values) {
  cpu::CpuStream stream;
  backend.hosts().all_reduce(values.data(), static_cast<std::int64_t>(values.size()), DataType::f64,
                             Reduction::sum, stream);
  stream.drain();
}

}  // namespace hydraulis
