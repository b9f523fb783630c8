#include "kernels/rendezvous/combine.h"

#include <fmt/format.h>

#include <cstring>

namespace hydraulis::rendezvous {
namespace {

constexpr int kTypeStep = 16;  // detail of a reduction: type · kTypeStep + reduction

const char* name_of(Kind kind) {
  return kind == Kind::reduce ? "all-reduce" : kind == Kind::gather ? "all-gather" : "broadcast";
}

std::string describe(const Frame& frame) {
  return fmt::format("{} of {} bytes, {}", name_of(frame.kind), frame.payload.size(), frame.detail);
}

/// sum ⊕= next, element by element.
template <typename T>
void add(std::vector<char>& sum, const std::vector<char>& next, Reduction reduction) {
  for (std::size_t at = 0; at + sizeof(T) <= sum.size(); at += sizeof(T)) {
    T a{};
    T b{};
    std::memcpy(&a, sum.data() + at, sizeof a);
    std::memcpy(&b, next.data() + at, sizeof b);
    if (reduction == Reduction::sum) {
      a += b;
    } else if (b > a || b != b) {  // a NaN wins, wherever it comes from
      a = b;
    }
    std::memcpy(sum.data() + at, &a, sizeof a);
  }
}

}  // namespace

int reduction_detail(Reduction reduction, DataType type) {
  return static_cast<int>(type) * kTypeStep + static_cast<int>(reduction);
}

std::string mismatch(const Exchange& exchange, const std::vector<int>& ranks) {
  const Frame& first = exchange.frames.front();
  for (std::size_t m = 1; m < exchange.frames.size(); ++m) {
    const Frame& other = exchange.frames[m];
    const bool sized =
        first.kind == Kind::broadcast || other.payload.size() == first.payload.size();
    if (other.kind == first.kind && other.detail == first.detail && sized) continue;
    return fmt::format("does not match: rank {} calls {}, rank {} {}", ranks[0], describe(first),
                       ranks[m], describe(other));
  }
  return {};
}

std::vector<char> combined(const Exchange& exchange) {
  const Frame& first = exchange.frames.front();
  std::vector<char> result;
  if (first.kind == Kind::broadcast) {
    return exchange.frames[static_cast<std::size_t>(first.detail)].payload;
  }
  for (const Frame& frame : exchange.frames) {
    if (first.kind == Kind::gather) {
      result.insert(result.end(), frame.payload.begin(), frame.payload.end());
    } else if (&frame == &first) {
      result = frame.payload;
    } else {
      const auto reduction = static_cast<Reduction>(first.detail % kTypeStep);
      if (static_cast<DataType>(first.detail / kTypeStep) == DataType::f64) {
        add<double>(result, frame.payload, reduction);
      } else {
        add<float>(result, frame.payload, reduction);
      }
    }
  }
  return result;
}

std::string list_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += fmt::format("{}{}", last == i + 1 ? ", " : "-", ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace hydraulis::rendezvous
