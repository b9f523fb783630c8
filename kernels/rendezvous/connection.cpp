#include "kernels/rendezvous/connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace hydraulis::rendezvous {
namespace {

constexpr double kServerSeconds = 5;  ///< for an answer that waits for nobody
constexpr double kForever = 1e9;      ///< what clocks can still count

std::string text_of(const Frame& frame) { return {frame.payload.begin(), frame.payload.end()}; }

}  // namespace

Connection::Connection(const SlurmStep& step, double seconds)
    : timeout_seconds(seconds), rank_(step.rank), size_(step.size), host_(step.host) {
  if (rank_ == 0) server_ = std::make_unique<Server>(step.port, step.size, step.run, seconds);
  // Rank 0 need not know itself by the name that the others know.
  const std::string host = rank_ == 0 ? "localhost" : step.host;
  const std::string trouble = connect_to(host, step.port, seconds, socket_);
  if (!trouble.empty()) {
    throw Error(
        ExitCode::internal,
        fmt::format(
            "rank {} on {}: rank 0 does not answer at {} port {} after {:g} s: {}; MASTER_ADDR and "
            "MASTER_PORT name another place",
            rank_, node_name(), step.host, step.port, seconds, trouble));
  }
  Hello hello;
  std::memcpy(hello.mark, kMark, sizeof kMark);
  hello.size = step.size;
  step.run.copy(hello.run, sizeof hello.run - 1);
  node_name().copy(hello.node, sizeof hello.node - 1);
  Frame frame{Kind::hello, 0, 0, rank_, std::vector<char>(sizeof hello)};
  std::memcpy(frame.payload.data(), &hello, sizeof hello);
  send_frame(socket_.get(), frame);
  reader_ = std::thread([this] { read(); });
  Frame answer;
  // The server says who is late; it may have begun a little after this rank.
  const bool came = wait_for_answer(2 * seconds + kServerSeconds, answer);
  if (came && answer.kind == Kind::welcome) return;
  {
    const std::lock_guard guard(mutex_);
    leaving_ = true;
  }
  ::shutdown(socket_.get(), SHUT_RDWR);
  reader_.join();
  throw Error(ExitCode::internal, fmt::format("rank {} of {}, meeting the others at {} port {}: {}",
                                              rank_, size_, step.host, step.port,
                                              came && answer.kind == Kind::failure
                                                  ? text_of(answer)
                                                  : "rank 0 is gone or does not answer"));
}

Connection::~Connection() {
  {
    const std::lock_guard guard(mutex_);
    leaving_ = true;
  }
  send_frame(socket_.get(), {Kind::goodbye, 0, 0, 0, {}});
  ::shutdown(socket_.get(), SHUT_RDWR);
  reader_.join();
}

void Connection::read() {
  Frame frame;
  while (receive_frame(socket_.get(), frame)) {
    if (frame.kind == Kind::end) {
      if (!frame.payload.empty()) {
        std::fputs(fmt::format("hydraulis: error: rank {}: {}\n", rank_, text_of(frame)).c_str(),
                   stderr);
      }
      std::_Exit(frame.detail);
    }
    const std::lock_guard guard(mutex_);
    welcome_ |= frame.kind == Kind::welcome;
    answers_.push_back(std::move(frame));
    came_.notify_all();
  }
  const std::lock_guard guard(mutex_);
  if (leaving_) return;
  if (welcome_) {
    std::fputs(
        fmt::format("hydraulis: error: rank {}: rank 0 on {} has left the job\n", rank_, host_)
            .c_str(),
        stderr);
    std::_Exit(static_cast<int>(ExitCode::internal));
  }
  answers_.push_back({Kind::end, 0, 0, 0, {}});  // it will not answer any more
  came_.notify_all();
}

bool Connection::wait_for_answer(double seconds, Frame& answer) {
  std::unique_lock lock(mutex_);
  if (!came_.wait_for(lock, std::chrono::duration<double>(std::min(seconds, kForever)),
                      [&] { return !answers_.empty(); })) {
    return false;
  }
  answer = std::move(answers_.front());
  answers_.erase(answers_.begin());
  return true;
}

Frame Connection::ask(const Frame& frame, const std::string& what) {
  if (!send_frame(socket_.get(), frame)) fail(what, "the connection to rank 0 is gone");
  Frame answer;
  if (wait_for_answer(timeout_seconds, answer)) {
    if (answer.kind == Kind::result) return answer;
    fail(what, text_of(answer));
  }
  std::string who = "rank 0 does not answer";
  send_frame(socket_.get(), {Kind::missing, frame.group, frame.number, 0, {}});
  if (wait_for_answer(kServerSeconds, answer)) {
    if (answer.kind == Kind::result) {  // just now; what was asked since is not the next's answer
      Frame late;
      wait_for_answer(kServerSeconds, late);
      return answer;
    }
    who = text_of(answer);
  }
  fail(what, fmt::format("gave up after {:g} s; {}", timeout_seconds, who));
}

void Connection::fail(const std::string& what, const std::string& why) const {
  throw CommunicationError(fmt::format("rank {}: {}: {}", rank_, what, why));
}

void Connection::abort(int exit_code) {
  {
    const std::lock_guard guard(mutex_);
    leaving_ = true;
  }
  std::fflush(stdout);
  send_frame(socket_.get(), {Kind::abort, 0, 0, exit_code, {}});
  // The server of rank 0 must have time to tell the others.
  if (server_ != nullptr) std::this_thread::sleep_for(std::chrono::seconds(1));
  std::_Exit(exit_code);
}

}  // namespace hydraulis::rendezvous
