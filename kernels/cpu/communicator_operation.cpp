#include "kernels/cpu/communicator_operation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace hydraulis::cpu {

namespace {

std::string mpi_message(int error) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(error, text, &length);
  return {text, static_cast<std::size_t>(length)};
}

bool is_truncation(int error) {
  int kind = 0;
  MPI_Error_class(error, &kind);
  return kind == MPI_ERR_TRUNCATE;
}

std::string describe(const Signature& s) {
  return fmt::format("{} number {} (count {}, type {}, root or reduction {})", s.operation,
                     s.number, s.count, s.type < 0 ? "-" : to_string(static_cast<DataType>(s.type)),
                     s.detail);
}

}  // namespace

Operation::Operation(std::shared_ptr<Group> group, std::string what)
    : group_(std::move(group)), what_(std::move(what)), open_(1) {}

Operation::~Operation() {
  if (!requests_.empty()) Operation::cancel();  // only when starting it failed
  for (void* block : scratch_) group_->job->scratch.release(block);
}

std::string Operation::place() const {
  const Group& g = *group_;
  std::string text = fmt::format("rank {}: {}", g.job->rank, what_);
  if (g.size() != g.job->size) text += fmt::format(" of ranks {}", fmt::join(g.members, ","));
  return text;
}

void Operation::fail(const std::string& how) const {
  group_->job->failed = true;
  throw CommunicationError(fmt::format("{}: {}", place(), how));
}

std::string Operation::overdue(double waited_seconds) const {
  group_->job->failed = true;
  std::vector<int> silent;
  std::vector<int> deaf;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    (parts_[i].is_send ? deaf : silent)
        .push_back(group_->members[static_cast<std::size_t>(parts_[i].peer)]);
  }
  const auto tidy = [](std::vector<int>& ranks) {
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  };
  tidy(silent);
  tidy(deaf);
  std::string text = fmt::format("{}: gave up after {:.1f} s", place(), waited_seconds);
  if (!silent.empty()) text += fmt::format("; nothing came from rank {}", fmt::join(silent, ", "));
  if (!deaf.empty()) text += fmt::format("; rank {} did not receive", fmt::join(deaf, ", "));
  return text;
}

void Operation::began(const Part& part, MPI_Request request, int error) {
  if (error != MPI_SUCCESS) fail(mpi_message(error));
  requests_.push_back(request);
  parts_.push_back(part);
  ++open_[static_cast<std::size_t>(part.step)];
}

void Operation::send(const void* data, std::int64_t bytes, int peer, int lane, int step) {
  const int to = group_->members[static_cast<std::size_t>(peer)];
  const int tag = (group_->context << kLaneBits) + lane;
  std::int64_t sent = 0;
  do {
    const std::int64_t part = std::min(bytes - sent, kMessageBytes);
    MPI_Request request = MPI_REQUEST_NULL;
    const int error = MPI_Isend(static_cast<const char*>(data) + sent, static_cast<int>(part),
                                MPI_BYTE, to, tag, group_->job->world, &request);
    began({peer, step, true, part}, request, error);
    sent += part;
  } while (sent < bytes);
}

void Operation::receive(void* data, std::int64_t bytes, int peer, int lane, int step) {
  const int from = group_->members[static_cast<std::size_t>(peer)];
  const int tag = (group_->context << kLaneBits) + lane;
  std::int64_t received = 0;
  do {
    const std::int64_t part = std::min(bytes - received, kMessageBytes);
    MPI_Request request = MPI_REQUEST_NULL;
    const int error = MPI_Irecv(static_cast<char*>(data) + received, static_cast<int>(part),
                                MPI_BYTE, from, tag, group_->job->world, &request);
    began({peer, step, false, part}, request, error);
    received += part;
  } while (received < bytes);
}

void Operation::compare_signature(const Signature& mine, int step) {
  const int n = group_->size();
  signatures_ = static_cast<Signature*>(scratch(2 * sizeof(Signature)));
  signatures_[0] = mine;
  signatures_[1] = {};
  receive(&signatures_[1], sizeof(Signature), (group_->rank + n - 1) % n, kSignatureLane, step);
  parts_.back().is_signature = true;
  send(&signatures_[0], sizeof(Signature), (group_->rank + 1) % n, kSignatureLane, step);
}

void Operation::check_signature() const {
  const Signature& mine = signatures_[0];
  const Signature& other = signatures_[1];
  if (std::memcmp(&mine, &other, sizeof(Signature)) == 0) return;
  const int n = group_->size();
  fail(fmt::format("does not match: here {}, on rank {} {}", describe(mine),
                   group_->members[static_cast<std::size_t>((group_->rank + n - 1) % n)],
                   describe(other)));
}

void Operation::look() {
  if (requests_.empty()) return;
  const auto count = static_cast<int>(requests_.size());
  done_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int done = 0;
  const int error = MPI_Testsome(count, requests_.data(), &done, done_.data(), statuses_.data());
  if (error != MPI_SUCCESS && error != MPI_ERR_IN_STATUS) fail(mpi_message(error));
  if (done == MPI_UNDEFINED || done == 0) return;
  std::string wrong;
  for (int i = 0; i < done; ++i) {
    const auto index = static_cast<std::size_t>(done_[static_cast<std::size_t>(i)]);
    const MPI_Status& status = statuses_[static_cast<std::size_t>(i)];
    const Part& part = parts_[index];
    --open_[static_cast<std::size_t>(part.step)];
    const int peer = group_->members[static_cast<std::size_t>(part.peer)];
    if (error == MPI_ERR_IN_STATUS && status.MPI_ERROR != MPI_SUCCESS) {
      requests_[index] = MPI_REQUEST_NULL;
      wrong = is_truncation(status.MPI_ERROR)
                  ? fmt::format("the message from rank {} is longer than the {} bytes expected",
                                peer, part.bytes)
                  : fmt::format("rank {}: {}", peer, mpi_message(status.MPI_ERROR));
      continue;
    }
    if (part.is_send) continue;
    int got = 0;
    MPI_Get_count(&status, MPI_BYTE, &got);
    if (got != part.bytes) {
      wrong = fmt::format("the message from rank {} has {} bytes, {} were expected", peer, got,
                          part.bytes);
    } else if (part.is_signature) {
      check_signature();
    }
  }
  if (!wrong.empty()) {
    // The signature travels ahead of what it describes.
    if (signatures_ != nullptr && signatures_[1].operation[0] != '\0') check_signature();
    fail(wrong);
  }
  // Forget what has ended, so that an operation of many steps stays cheap to look at.
  std::size_t kept = 0;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[kept] = requests_[i];
    parts_[kept] = parts_[i];
    ++kept;
  }
  requests_.resize(kept);
  parts_.resize(kept);
}

void* Operation::scratch(std::int64_t bytes) {
  void* block = group_->job->scratch.allocate(bytes);
  if (block != nullptr) scratch_.push_back(block);
  return block;
}

void Operation::cancel() noexcept {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    // What a peer may still read or write is left to it: sends go on, receives end if nobody has
    // begun to fill them.
    if (!parts_[i].is_send) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
  }
  requests_.clear();
  parts_.clear();
  scratch_.clear();  // stays allocated for the same reason
}

}  // namespace hydraulis::cpu
