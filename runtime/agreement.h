#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "runtime/tensor.h"

namespace hydraulis {

/// An error that other ranks share or have already told about: nothing is left to print.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// Runs `work` on every rank and comes back when it succeeded everywhere. Where it threw an Error
/// on some rank, every rank throws it: an Error with the message on the lowest rank it failed on
/// ("rank 3: …" when not on all), an AgreedError on the others. All ranks call it together.
void together(Communicator& world, const std::function<void()>& work);

/// Bytes of rank 0 on every rank.
std::vector<std::uint8_t> broadcast_bytes(const Backend& backend, std::vector<std::uint8_t> bytes);
/// One text of every rank, on every rank.
std::vector<std::string> gather_texts(const Backend& backend, const std::string& mine);
/// Greatest value of any rank.
double max_over_ranks(const Backend& backend, double value);

}  // namespace hydraulis
