#include "costmodel/profiler/collective_case.h"

#include <array>
#include <chrono>
#include <stdexcept>

namespace hydraulis {
namespace {

/// Whole numbers that differ by rank and place, small enough that sums over all ranks are exact in
/// single precision.
double value_of(int rank, std::int64_t place) {
  constexpr std::int64_t kRange = 61;
  return static_cast<double>((place * 7 + std::int64_t{rank} * 13) % kRange);
}

}  // namespace

std::int64_t divisible_bytes(std::int64_t wanted, int ranks, DataType type) {
  const std::int64_t step = ranks * size_of(type);
  return (wanted + step - 1) / step * step;
}

CollectiveCase::CollectiveCase(const Bench& bench, Communicator& group, Collective operation,
                               std::int64_t bytes, int sets)
    : bench_(bench),
      group_(group),
      operation_(operation),
      type_(wide_type(bench.type)),
      elements_(bytes / size_of(type_)),
      part_(elements_ / group.size()) {
  const std::int64_t part_bytes = part_ * size_of(type_);
  const bool gives_part = operation == Collective::all_gather;
  const bool takes_part = operation == Collective::reduce_scatter;
  for (int i = 0; i < sets; ++i) {
    Buffers set;
    set.from = DeviceBuffer(*bench.device, gives_part ? part_bytes : bytes);
    // All-reduce, broadcast and messages have one buffer.
    if (gives_part || operation == Collective::all_to_all) {
      set.to = DeviceBuffer(*bench.device, bytes);
    }
    if (takes_part) set.to = DeviceBuffer(*bench.device, part_bytes);
    sets_.push_back(std::move(set));
  }
  part_bytes_.assign(static_cast<std::size_t>(group.size()), part_bytes);
  for (int rank = 0; rank < group.size(); ++rank) part_offsets_.push_back(rank * part_bytes);
}

template <typename T>
std::vector<T> CollectiveCase::input() const {
  std::vector<T> values(static_cast<std::size_t>(sets_.front().from.bytes() / size_of(type_)));
  const int rank = group_.rank();
  // Who only receives starts with what must be replaced.
  const bool receives =
      rank != 0 && (operation_ == Collective::broadcast || operation_ == Collective::send);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<T>(receives ? -1 : value_of(rank, static_cast<std::int64_t>(i)));
  }
  return values;
}

template <typename T>
std::vector<T> CollectiveCase::expected() const {
  const std::int64_t count = operation_ == Collective::reduce_scatter ? part_ : elements_;
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    double value = 0;
    switch (operation_) {
      case Collective::all_reduce:
      case Collective::reduce_scatter: {
        const std::int64_t offset =
            operation_ == Collective::reduce_scatter ? group_.rank() * part_ : 0;
        for (int rank = 0; rank < group_.size(); ++rank) value += value_of(rank, offset + i);
        break;
      }
      case Collective::all_gather:
        value = value_of(static_cast<int>(i / part_), i % part_);
        break;
      case Collective::all_to_all:
        value = value_of(static_cast<int>(i / part_), group_.rank() * part_ + i % part_);
        break;
      case Collective::broadcast:
      case Collective::send:
        value = value_of(0, i);
        break;
    }
    values[static_cast<std::size_t>(i)] = static_cast<T>(value);
  }
  return values;
}

void CollectiveCase::launch(const Buffers& buffers) {
  Stream& stream = *bench_.stream;
  void* from = buffers.from.data();
  void* to = buffers.to.data();
  switch (operation_) {
    case Collective::all_reduce:
      return group_.all_reduce(from, elements_, type_, Reduction::sum, stream);
    case Collective::reduce_scatter:
      return group_.reduce_scatter(from, to, part_, type_, stream);
    case Collective::all_gather:
      return group_.all_gather(from, to, part_, type_, stream);
    case Collective::broadcast:
      return group_.broadcast(from, buffers.from.bytes(), 0, stream);
    case Collective::all_to_all:
      return group_.all_to_all_v(from, part_bytes_, part_offsets_, to, part_bytes_, part_offsets_,
                                 stream);
    case Collective::send:
      return exchange(0, buffers);
  }
  throw std::logic_error("a collective that the profiler does not know");
}

void CollectiveCase::exchange(int sender, const Buffers& buffers) {
  const std::array<Message, 1> message{Message{1 - group_.rank(), group_.rank() == sender,
                                               buffers.from.data(), buffers.from.bytes()}};
  group_.exchange(message, Channel::other, *bench_.stream);
}

template <typename T>
std::int64_t CollectiveCase::compare() {
  const std::vector<T> before = input<T>();
  const auto& [from, to] = sets_.front();
  bench_.device->copy_to_device(from.data(), before.data(), from.bytes(), *bench_.stream);
  launch(sets_.front());
  const std::vector<T> wanted = expected<T>();
  std::vector<T> found(wanted.size());
  bench_.device->copy_to_host(found.data(), to.bytes() > 0 ? to.data() : from.data(),
                              static_cast<std::int64_t>(found.size() * sizeof(T)), *bench_.stream);
  bench_.device->synchronize(*bench_.stream);
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) wrong += found[i] == wanted[i] ? 0 : 1;
  return wrong;
}

std::int64_t CollectiveCase::wrong_values() {
  const std::int64_t wrong = type_ == DataType::f64 ? compare<double>() : compare<float>();
  // Sums of sums would grow without end when it is repeated; of zeros they do not.
  for (const Buffers& set : sets_) {
    bench_.device->zero(set.from.data(), set.from.bytes(), *bench_.stream);
  }
  bench_.device->synchronize(*bench_.stream);
  return wrong;
}

double CollectiveCase::run(int times) {
  const auto start = std::chrono::steady_clock::now();
  double halves = 1;
  if (operation_ == Collective::send) {
    // There and back: one way alone, messages would overtake one another's time.
    for (int i = 0; i < times; ++i) {
      for (const int sender : {0, 1}) {
        exchange(sender, next());
        bench_.device->synchronize(*bench_.stream);
      }
    }
    halves = 2;
  } else {
    for (int i = 0; i < times; ++i) launch(next());
    bench_.device->synchronize(*bench_.stream);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / halves;
}

}  // namespace hydraulis
