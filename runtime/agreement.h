#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "runtime/tensor.h"

namespace hydraulis {

/// An error that every rank knows of, so that all can end in order.
class AgreedError : public Error {
 public:
  AgreedError(ExitCode code, const std::string& message, bool tells)
      : Error(code, message), tells_(tells) {}
  /// Whether this rank is the one that tells people.
  bool tells() const { return tells_; }

 private:
  bool tells_;
};

// What ranks agree on lies in host memory and travels by the communicator for that, on the CPU
// backend's streams whatever the device.

/// Runs `work` on every rank and comes back when it succeeded everywhere. Where it threw an Error
/// on some rank, every rank throws an AgreedError; the lowest rank it failed on tells the message
/// ("rank 3: …" when not all failed). All ranks call it together.
void together(Communicator& hosts, const std::function<void()>& work);

/// Bytes of rank 0 on every rank.
std::vector<std::uint8_t> broadcast_bytes(const Backend& backend, std::vector<std::uint8_t> bytes);
/// One text of every rank, on every rank.
std::vector<std::string> gather_texts(const Backend& backend, const std::string& mine);
/// Greatest value of any rank.
double max_over_ranks(const Backend& backend, double value);
/// Sums in the order of ranks, in place.
void sum_over_ranks(const Backend& backend, std::span<double> values);

}  // namespace hydraulis
