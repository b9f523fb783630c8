#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/communicator.h"
#include "kernels/rendezvous/server.h"
#include "kernels/rendezvous/slurm_step.h"
#include "kernels/rendezvous/socket.h"

namespace hydraulis::rendezvous {

/// This process's place at the rendezvous of its job; that of rank 0 holds the server. A thread
/// reads what comes, so that the process ends when the job does, whatever it is doing.
class Connection {
 public:
  /// Comes to the rendezvous and waits until all have. Throws Error, which names those that have
  /// not; InputError where rank 0 cannot listen.
  Connection(const SlurmStep& step, double seconds);
  /// Says goodbye.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Sends and waits for the answer, at most the time limit. Throws CommunicationError; `what` says
  /// what for.
  Frame ask(const Frame& frame, const std::string& what);
  /// Ends every process of the job.
  [[noreturn]] void abort(int exit_code);

  int rank() const { return rank_; }
  int size() const { return size_; }
  double timeout_seconds = 60;
  Traffic traffic;

 private:
  void read();
  bool wait_for_answer(double seconds, Frame& answer);
  [[noreturn]] void fail(const std::string& what, const std::string& why) const;

  int rank_;
  int size_;
  std::string host_;
  std::unique_ptr<Server> server_;  ///< at rank 0
  Socket socket_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<Frame> answers_;
  bool leaving_ = false;
  bool welcome_ = false;
  std::thread reader_;
};

}  // namespace hydraulis::rendezvous
