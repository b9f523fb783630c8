#pragma once

#include <memory>
#include <string>

namespace hydraulis::rendezvous {

/// Where the ranks of a job meet: a thread in the process of rank 0 that every rank, rank 0 too,
/// keeps a connection to. It brings together what the members of a group send for the same
/// operation and sends each the result. It ends the job when a rank leaves without a goodbye or
/// asks for it.
class Server {
 public:
  /// Listens at once. Ranks that have not come after `seconds` are named to those that have. `run`:
  /// what all must be of. Throws InputError when the port is taken.
  Server(int port, int size, std::string run, double seconds);
  /// Waits until all ranks have said goodbye or gone, a minute at most.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace hydraulis::rendezvous
