#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/communicator.h"
#include "kernels/rendezvous/socket.h"

namespace hydraulis::rendezvous {

/// One operation of a group on its way: what each member has sent.
struct Exchange {
  std::vector<char> arrived;  ///< by member; 1: its frame is in `frames`
  std::vector<Frame> frames;
  int count = 0;
};

/// What is wrong with a complete operation, or nothing: members that do not all mean the same.
std::string mismatch(const Exchange& exchange, const std::vector<int>& ranks);
/// The result that all members get. Sums are taken in the order of members.
std::vector<char> combined(const Exchange& exchange);

/// Frame::detail of a reduction.
int reduction_detail(Reduction reduction, DataType type);

/// "rank 2", "ranks 0, 3-5".
std::string list_ranks(const std::vector<int>& ranks);

}  // namespace hydraulis::rendezvous
