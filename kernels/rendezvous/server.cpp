#include "kernels/rendezvous/server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/rendezvous/combine.h"
#include "kernels/rendezvous/socket.h"

namespace hydraulis::rendezvous {
namespace {

constexpr int kLookMilliseconds = 100;
constexpr double kGoodbyeSeconds = 60;    ///< after the server's own process has no use for it
constexpr std::size_t kMostHello = 4096;  ///< bytes from a stranger
constexpr double kNever = 1e300;
constexpr std::size_t kBlock = std::size_t{1} << 16;

std::vector<char> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

class Server::Loop {
 public:
  Loop(int port, int size, std::string run, double seconds)
      : listening_(listen_on(port)),
        size_(size),
        run_(std::move(run)),
        deadline_(now() + seconds),
        seconds_(seconds),
        by_rank_(static_cast<std::size_t>(size), nullptr),
        groups_(1) {
    for (int r = 0; r < size; ++r) groups_[0].push_back(r);
    thread_ = std::thread([this] { serve(); });
  }
  ~Loop() {
    ending_ = now() + kGoodbyeSeconds;
    thread_.join();
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

 private:
  struct Client {
    Socket socket;
    std::vector<char> received;
    int rank = -1;  ///< before its hello
    std::string node;
    bool gone = false;
    bool bye = false;
  };
  using Place = std::pair<std::uint32_t, std::uint64_t>;  ///< group, number

  void serve() {
    while (now() < ending_ && !((welcomed_ || ending_ < kNever) && staying() == 0)) {
      std::vector<pollfd> waiting;
      for (const auto& client : clients_) waiting.push_back({client->socket.get(), POLLIN, 0});
      if (!welcomed_) waiting.push_back({listening_.get(), POLLIN, 0});
      ::poll(waiting.data(), waiting.size(), kLookMilliseconds);
      const std::size_t known = clients_.size();
      for (std::size_t i = 0; i < known; ++i) {
        if (waiting[i].revents != 0) read(*clients_[i]);
      }
      if (!welcomed_ && waiting.back().revents != 0) take();
      std::erase_if(clients_, [&](const auto& client) {
        const auto place = std::find(by_rank_.begin(), by_rank_.end(), client.get());
        if (client->gone && place != by_rank_.end()) *place = nullptr;
        return client->gone;
      });
      if (!welcomed_ && failure_.empty() && now() > deadline_) fail_start(late());
    }
  }

  std::size_t staying() const {
    std::size_t count = 0;
    for (const auto& client : clients_) count += client->bye ? 0 : 1;
    return count;
  }

  void take() {
    Socket socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.open()) return;
    const int on = 1;  // a frame's header and payload are sent one after the other
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    clients_.push_back(std::make_unique<Client>());
    clients_.back()->socket = std::move(socket);
  }

  void read(Client& client) {
    char block[kBlock];
    const ssize_t got = ::recv(client.socket.get(), block, sizeof block, 0);
    if (got <= 0) return left(client);
    client.received.insert(client.received.end(), block, block + got);
    if (client.rank < 0 && client.received.size() > kMostHello) return left(client);
    try {
      Frame frame;
      while (!client.gone && take_frame(client.received, frame)) handle(client, std::move(frame));
    } catch (const std::runtime_error&) {
      left(client);  // no rank of a job
    }
  }

  void handle(Client& client, Frame frame) {
    if (client.rank < 0) {
      if (frame.kind != Kind::hello) return left(client);
      return greet(client, frame);
    }
    switch (frame.kind) {
      case Kind::reduce:
      case Kind::gather:
      case Kind::broadcast:
        return collect(client, std::move(frame));
      case Kind::group:
        return make_group(client, frame);
      case Kind::missing:
        return tell_missing(client, frame);
      case Kind::abort:
        return end_all(frame.detail, {}, client.rank);
      case Kind::goodbye:
        client.bye = true;
        return;
      default:
        return left(client);
    }
  }

  void greet(Client& client, const Frame& frame) {
    Hello hello;
    if (frame.payload.size() != sizeof hello) return left(client);
    std::memcpy(&hello, frame.payload.data(), sizeof hello);
    if (std::memcmp(hello.mark, kMark, sizeof kMark) != 0) return left(client);
    hello.run[sizeof hello.run - 1] = '\0';
    hello.node[sizeof hello.node - 1] = '\0';
    client.node = hello.node;
    const int rank = frame.detail;
    std::string wrong;
    if (hello.run != run_) {
      wrong = fmt::format("rank {} on {} is of the run {}, rank 0 of {}", rank, client.node,
                          hello.run, run_);
    } else if (hello.size != size_) {
      wrong = fmt::format("rank {} on {} counts {} ranks, rank 0 {}", rank, client.node, hello.size,
                          size_);
    } else if (rank < 0 || rank >= size_) {
      wrong = fmt::format("a rank {} on {}, of {}", rank, client.node, size_);
    } else if (by_rank_[static_cast<std::size_t>(rank)] != nullptr) {
      wrong = fmt::format("rank {} came twice, from {} and {}", rank,
                          by_rank_[static_cast<std::size_t>(rank)]->node, client.node);
    }
    if (!wrong.empty()) {
      send_frame(client.socket.get(), {Kind::failure, 0, 0, 0, bytes_of(wrong)});
      client.gone = true;
      return fail_start(wrong);
    }
    client.rank = rank;
    by_rank_[static_cast<std::size_t>(rank)] = &client;
    if (!failure_.empty()) return to(rank, {Kind::failure, 0, 0, 0, bytes_of(failure_)});
    for (const Client* other : by_rank_) {
      if (other == nullptr) return;
    }
    welcomed_ = true;
    to_all({Kind::welcome, 0, 0, 0, {}});
  }

  std::string late() const {
    std::vector<int> missing;
    for (int r = 0; r < size_; ++r) {
      if (by_rank_[static_cast<std::size_t>(r)] == nullptr) missing.push_back(r);
    }
    return fmt::format("{} of {} {} not come within {:g} s", list_ranks(missing), size_,
                       missing.size() == 1 ? "has" : "have", seconds_);
  }

  void fail_start(const std::string& why) {
    failure_ = why;
    to_all({Kind::failure, 0, 0, 0, bytes_of(why)});
  }

  void collect(Client& client, Frame frame) {
    if (frame.group >= groups_.size()) return left(client);
    const std::vector<int>& ranks = groups_[frame.group];
    const auto member = static_cast<std::size_t>(
        std::find(ranks.begin(), ranks.end(), client.rank) - ranks.begin());
    const bool root = frame.kind != Kind::broadcast ||
                      (frame.detail >= 0 && frame.detail < static_cast<int>(ranks.size()));
    if (member == ranks.size() || !root) return left(client);
    const Place place{frame.group, frame.number};
    Exchange& exchange = exchanges_[place];
    exchange.arrived.resize(ranks.size());
    exchange.frames.resize(ranks.size());
    if (exchange.arrived[member] != 0) return left(client);
    exchange.arrived[member] = 1;
    exchange.frames[member] = std::move(frame);
    if (++exchange.count < static_cast<int>(ranks.size())) return;
    const std::string wrong = mismatch(exchange, ranks);
    Frame answer{Kind::result, place.first, place.second, 0, {}};
    if (wrong.empty()) {
      answer.payload = combined(exchange);
    } else {
      answer.kind = Kind::failure;
      answer.payload = bytes_of(wrong);
    }
    exchanges_.erase(place);
    for (const int rank : ranks) to(rank, answer);
  }

  void make_group(Client& client, const Frame& frame) {
    std::vector<std::int32_t> list(frame.payload.size() / sizeof(std::int32_t));
    std::memcpy(list.data(), frame.payload.data(), list.size() * sizeof(std::int32_t));
    const std::vector<int> ranks(list.begin(), list.end());
    const auto valid = [&](int rank) { return rank >= 0 && rank < size_; };
    if (!std::all_of(ranks.begin(), ranks.end(), valid)) return left(client);
    std::vector<int>& come = making_[ranks];
    if (std::find(come.begin(), come.end(), client.rank) != come.end()) return left(client);
    come.push_back(client.rank);
    if (come.size() < ranks.size()) return;
    making_.erase(ranks);
    const auto number = static_cast<std::uint32_t>(groups_.size());
    groups_.push_back(ranks);
    Frame answer{Kind::result, number, 0, 0, {}};
    for (const int rank : ranks) to(rank, answer);
  }

  void tell_missing(const Client& client, const Frame& frame) {
    std::vector<int> missing;
    const auto found = exchanges_.find({frame.group, frame.number});
    if (found != exchanges_.end()) {
      const std::vector<int>& ranks = groups_[frame.group];
      for (std::size_t m = 0; m < ranks.size(); ++m) {
        if (found->second.arrived[m] == 0) missing.push_back(ranks[m]);
      }
    }
    for (const auto& [ranks, come] : making_) {
      if (std::find(come.begin(), come.end(), client.rank) == come.end()) continue;
      for (const int rank : ranks) {
        if (std::find(come.begin(), come.end(), rank) == come.end()) missing.push_back(rank);
      }
    }
    const std::string text =
        missing.empty() ? std::string() : "nothing came from " + list_ranks(missing);
    to(client.rank, {Kind::failure, frame.group, frame.number, 0, bytes_of(text)});
  }

  /// A connection has ended.
  void left(Client& client) {
    client.gone = true;
    if (client.rank < 0) return;
    if (client.bye || !failure_.empty()) return;
    if (!welcomed_) {
      return fail_start(fmt::format("rank {} on {} came and left again", client.rank, client.node));
    }
    end_all(static_cast<int>(ExitCode::internal),
            fmt::format("rank {} on {} has left the job", client.rank, client.node), client.rank);
  }

  /// The server's own process last: the thread ends with it.
  void end_all(int code, const std::string& why, int but) {
    if (std::exchange(ended_, true)) return;
    const Frame frame{Kind::end, 0, 0, code, bytes_of(why)};
    for (int rank = size_ - 1; rank >= 0; --rank) {
      if (rank != but) to(rank, frame);
    }
  }

  void to_all(const Frame& frame) {
    for (int rank = size_ - 1; rank >= 0; --rank) to(rank, frame);
  }
  void to(int rank, const Frame& frame) {
    Client* client = by_rank_[static_cast<std::size_t>(rank)];
    // One that is gone is noticed when it is read.
    if (client != nullptr && !client->gone) send_frame(client->socket.get(), frame);
  }

  Socket listening_;
  int size_;
  std::string run_;
  double deadline_;
  double seconds_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<Client*> by_rank_;
  std::vector<std::vector<int>> groups_;  ///< their ranks
  std::map<Place, Exchange> exchanges_;
  std::map<std::vector<int>, std::vector<int>> making_;  ///< groups: who has come
  bool welcomed_ = false;
  std::string failure_;  ///< why not all can come
  bool ended_ = false;
  std::atomic<double> ending_ = kNever;  ///< when to end in any case
  std::thread thread_;
};

Server::Server(int port, int size, std::string run, double seconds)
    : loop_(std::make_unique<Loop>(port, size, std::move(run), seconds)) {}

Server::~Server() = default;

}  // namespace hydraulis::rendezvous
