#include "runtime/shard_io.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace hydraulis {
namespace {

constexpr std::int64_t kPiece = 1 << 18;  // elements read at a time

/// Place in the file's row order of element `e` in layout order.
std::int64_t file_element(const LogicalTensor& tensor, std::int64_t e) {
  if (!tensor.transposed) return e;
  const std::int64_t rows = tensor.shape[0];
  const std::int64_t columns = tensor.shape[1];
  return e % rows * columns + e / rows;
}

const LogicalTensor& find(const std::vector<LogicalTensor>& tensors, const OwnedRange& range) {
  return *std::find_if(tensors.begin(), tensors.end(), [&](const LogicalTensor& tensor) {
    return tensor.layer == range.layer && tensor.kind == range.kind;
  });
}

/// The range lies in columns [first, last] of the file's matrix: reads those of every row.
std::vector<double> read_transposed(const LogicalTensor& tensor, const OwnedRange& range,
                                    const TensorReader& read) {
  const std::int64_t rows = tensor.shape[0];
  const std::int64_t columns = tensor.shape[1];
  const std::int64_t first = range.begin / rows;
  const std::int64_t width = (range.end - 1) / rows - first + 1;
  std::vector<double> values(range.end - range.begin);
  std::vector<double> piece(width);
  for (std::int64_t row = 0; row < rows; ++row) {
    read(tensor, row * columns + first, piece);
    for (std::int64_t column = 0; column < width; ++column) {
      const std::int64_t e = (first + column) * rows + row;
      if (e >= range.begin && e < range.end) values[e - range.begin] = piece[column];
    }
  }
  return values;
}

}  // namespace

void load_shard(const OptimizerShard& shard, Matrix into, const DecoderSpec& decoder,
                const TensorReader& read) {
  const std::vector<LogicalTensor> tensors = logical_tensors(decoder.shape);
  for (const OwnedRange& range : shard.ranges()) {
    const LogicalTensor& tensor = find(tensors, range);
    std::vector<double> values;
    if (tensor.transposed) {
      values = read_transposed(tensor, range, read);
    } else {
      values.resize(range.end - range.begin);
      for (std::int64_t at = 0; at < static_cast<std::int64_t>(values.size()); at += kPiece) {
        const std::int64_t count = std::min<std::int64_t>(kPiece, values.size() - at);
        read(tensor, range.begin + at, std::span(values).subspan(at, count));
      }
    }
    shard.from_host(into, range, values);
  }
}

std::vector<int> checkpoint_writers(const std::vector<LogicalTensor>& tensors, int ranks) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return tensors[a].elements() > tensors[b].elements();
  });
  std::vector<std::int64_t> load(ranks, 0);
  std::vector<int> writers(tensors.size(), 0);
  for (const std::size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    writers[i] = static_cast<int>(least - load.begin());
    *least += tensors[i].elements();
  }
  return writers;
}

std::vector<WholeTensor> gather_tensors(const Backend& backend, const OptimizerShard& shard,
                                        Matrix of, const DecoderSpec& decoder) {
  const std::vector<LogicalTensor> tensors = logical_tensors(decoder.shape);
  const std::vector<int> writers = checkpoint_writers(tensors, backend.world->size());
  const int rank = backend.world->rank();
  const std::int64_t element = size_of(of.type);
  const ComputeStream stream(backend);
  std::vector<WholeTensor> mine;
  Layout owners;
  int owners_layer = kEmbeddingLayer - 1;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const LogicalTensor& tensor = tensors[i];
    if (tensor.layer != owners_layer) {
      owners = optimizer_layout(decoder.shape, shard.layout(), tensor.layer);
      owners_layer = tensor.layer;
    }
    const Layout whole{{writers[i], tensor.kind, 0, tensor.elements()}};
    const bool writes = writers[i] == rank;
    std::vector<DeviceBuffer> copied;  // from host memory, until they are sent
    Tensor here = writes ? Tensor(backend, of.type, 1, tensor.elements()) : Tensor();
    std::vector<Message> messages;
    for (const Transfer& transfer :
         plan_transfers(owners, whole, backend.world->size(), static_cast<int>(element))) {
      const std::int64_t bytes = (transfer.end - transfer.begin) * element;
      void* to = writes ? static_cast<char*>(here.matrix.data) + transfer.begin * element : nullptr;
      void* from = nullptr;
      if (transfer.source == rank) {
        from = shard.part(of, tensor.layer, tensor.kind, transfer.begin, transfer.end).data;
        if (shard.on_host(of)) {
          const void* states = from;
          from = copied.emplace_back(*backend.device, bytes).data();
          backend.device->copy_to_device(from, states, bytes, *stream);
        }
      }
      if (writes && from != nullptr) {
        backend.device->copy(to, from, bytes, *stream);
      } else if (writes) {
        messages.push_back({transfer.source, false, to, bytes});
      } else if (from != nullptr) {
        messages.push_back({writers[i], true, from, bytes});
      }
    }
    backend.world->exchange(messages, Channel::other, *stream);
    backend.device->synchronize(*stream);
    if (!writes) continue;
    WholeTensor result{tensor, std::vector<double>(tensor.elements())};
    std::vector<double> in_layout_order(tensor.elements());
    if (of.type == DataType::f64) {
      backend.device->copy_to_host(in_layout_order.data(), here.matrix.data, here.bytes(), *stream);
      backend.device->synchronize(*stream);
    } else {
      std::vector<float> singles(tensor.elements());
      backend.device->copy_to_host(singles.data(), here.matrix.data, here.bytes(), *stream);
      backend.device->synchronize(*stream);
      in_layout_order.assign(singles.begin(), singles.end());
    }
    for (std::int64_t e = 0; e < tensor.elements(); ++e) {
      result.values[file_element(tensor, e)] = in_layout_order[e];
    }
    mine.push_back(std::move(result));
  }
  return mine;
}

}  // namespace hydraulis
