#include "runtime/agreement.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>

#include "kernels/cpu/stream.h"

namespace hydraulis {

void together(Communicator& world, const std::function<void()>& work) {
  std::optional<Error> failed;
  try {
    work();
  } catch (const Error& error) {
    failed = error;
  }
  // By rank: its exit code. Host memory, so the CPU backend's stream whatever the device.
  std::vector<double> codes(world.size(), 0.0);
  if (failed) codes[world.rank()] = static_cast<double>(failed->code());
  cpu::CpuStream stream;
  world.all_reduce(codes.data(), world.size(), DataType::f64, Reduction::max, stream);
  stream.drain();
  const auto first = std::find_if(codes.begin(), codes.end(), [](double c) { return c > 0; });
  if (first == codes.end()) return;
  const auto code = static_cast<ExitCode>(static_cast<int>(*first));
  if (first - codes.begin() != world.rank()) throw AgreedError(code, "another rank failed", false);
  const bool everywhere = std::all_of(codes.begin(), codes.end(), [](double c) { return c > 0; });
  const std::string what = failed->what();
  throw AgreedError(code, everywhere ? what : fmt::format("rank {}: {}", world.rank(), what), true);
}

std::vector<std::uint8_t> broadcast_bytes(const Backend& backend, std::vector<std::uint8_t> bytes) {
  const std::unique_ptr<Stream> stream = backend.device->make_stream();
  auto size = static_cast<std::int64_t>(bytes.size());
  DeviceBuffer size_buffer(*backend.device, sizeof(size));
  backend.device->copy_to_device(size_buffer.data(), &size, sizeof(size), *stream);
  backend.world->broadcast(size_buffer.data(), sizeof(size), 0, *stream);
  backend.device->copy_to_host(&size, size_buffer.data(), sizeof(size), *stream);
  backend.device->synchronize(*stream);
  bytes.resize(size);
  DeviceBuffer buffer(*backend.device, size);
  if (size > 0) backend.device->copy_to_device(buffer.data(), bytes.data(), size, *stream);
  backend.world->broadcast(buffer.data(), size, 0, *stream);
  if (size > 0) backend.device->copy_to_host(bytes.data(), buffer.data(), size, *stream);
  backend.device->synchronize(*stream);
  return bytes;
}

std::vector<std::string> gather_texts(const Backend& backend, const std::string& mine) {
  const std::unique_ptr<Stream> stream = backend.device->make_stream();
  const auto longest =
      static_cast<std::int64_t>(max_over_ranks(backend, static_cast<double>(mine.size())));
  // Ended by a zero, padded to whole numbers of the gathered type.
  const std::int64_t width = longest / 8 + 1;
  std::string padded = mine;
  padded.resize(width * 8, '\0');
  const int ranks = backend.world->size();
  DeviceBuffer from(*backend.device, width * 8);
  DeviceBuffer to(*backend.device, width * 8 * ranks);
  backend.device->copy_to_device(from.data(), padded.data(), width * 8, *stream);
  backend.world->all_gather(from.data(), to.data(), width, DataType::f64, *stream);
  std::string all(width * 8 * ranks, '\0');
  backend.device->copy_to_host(all.data(), to.data(), width * 8 * ranks, *stream);
  backend.device->synchronize(*stream);
  std::vector<std::string> texts;
  for (int rank = 0; rank < ranks; ++rank) {
    texts.emplace_back(all.c_str() + static_cast<std::ptrdiff_t>(rank * width * 8));
  }
  return texts;
}

double max_over_ranks(const Backend& backend, double value) {
  const std::unique_ptr<Stream> stream = backend.device->make_stream();
  DeviceBuffer buffer(*backend.device, sizeof(value));
  backend.device->copy_to_device(buffer.data(), &value, sizeof(value), *stream);
  backend.world->all_reduce(buffer.data(), 1, DataType::f64, Reduction::max, *stream);
  backend.device->copy_to_host(&value, buffer.data(), sizeof(value), *stream);
  backend.device->synchronize(*stream);
  return value;
}

}  // namespace hydraulis
