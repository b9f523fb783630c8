#include "kernels/rendezvous/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "base/error.h"

namespace hydraulis::rendezvous {
namespace {

struct Header {
  std::uint32_t kind = 0;
  std::uint32_t group = 0;
  std::uint64_t number = 0;
  std::int32_t detail = 0;
  std::uint32_t mark = 0x48594452;  ///< of a frame
  std::uint64_t bytes = 0;
};
static_assert(sizeof(Header) == 32);

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 32;
constexpr int kBacklog = 4096;
constexpr double kMostMilliseconds = 1e9;  ///< of one attempt, what poll() can count

bool whole(const Header& header) {
  return header.mark == Header{}.mark && header.bytes <= kMostBytes &&
         header.kind <= static_cast<std::uint32_t>(Kind::end);
}

Frame frame_of(const Header& header) {
  return {static_cast<Kind>(header.kind), header.group, header.number, header.detail, {}};
}

bool send_all(int descriptor, const char* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = ::send(descriptor, data, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int descriptor, char* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = ::recv(descriptor, data, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    data += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

/// A connection to a port of this machine where nobody listens may be given that port itself and
/// then meet itself.
bool meets_itself(int descriptor) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t length = sizeof here;
  socklen_t other = sizeof there;
  return ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&here), &length) == 0 &&
         ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&there), &other) == 0 &&
         length == other && std::memcmp(&here, &there, length) == 0;
}

/// One attempt within the time; the error's text, or nothing.
std::string connect_once(const addrinfo& address, double seconds, Socket& socket) {
  Socket fresh(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fresh.open()) return std::strerror(errno);
  if (::connect(fresh.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return std::strerror(errno);
    pollfd waiting{fresh.get(), POLLOUT, 0};
    const auto most = static_cast<int>(std::min(seconds * 1000, kMostMilliseconds));
    if (::poll(&waiting, 1, most + 1) <= 0) return "no answer";
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(fresh.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return std::strerror(error);
  }
  if (meets_itself(fresh.get())) return "nobody listens";
  int on = 1;
  ::setsockopt(fresh.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fresh.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  // From now on calls wait.
  ::fcntl(fresh.get(), F_SETFL, 0);
  socket = std::move(fresh);
  return {};
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Socket listen_on(int port) {
  const auto attempt = [&](int family) {
    // Who is gone before it is accepted must not make the server wait.
    Socket socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.open()) return socket;
    int on = 1;
    int off = 0;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_storage any{};
    socklen_t length = sizeof(sockaddr_in);
    if (family == AF_INET6) {
      ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      auto& address = reinterpret_cast<sockaddr_in6&>(any);
      address.sin6_family = AF_INET6;
      address.sin6_port = htons(static_cast<std::uint16_t>(port));
      length = sizeof(sockaddr_in6);
    } else {
      auto& address = reinterpret_cast<sockaddr_in&>(any);
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<std::uint16_t>(port));
    }
    if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&any), length) != 0 ||
        ::listen(socket.get(), kBacklog) != 0) {
      return Socket();
    }
    return socket;
  };
  Socket socket = attempt(AF_INET6);
  if (!socket.open()) socket = attempt(AF_INET);
  if (!socket.open()) {
    throw InputError(
        "rank 0 cannot listen on port {} of node {} for the other tasks of the step: {}; choose "
        "another with MASTER_PORT",
        port, node_name(), std::strerror(errno));
  }
  return socket;
}

std::string connect_to(const std::string& host, int port, double seconds, Socket& socket) {
  const double end = now() + seconds;
  std::string why;
  while (true) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (error != 0) why = ::gai_strerror(error);
    for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
      why = connect_once(*a, std::max(0.1, end - now()), socket);
      if (why.empty()) break;
    }
    if (found != nullptr) ::freeaddrinfo(found);
    if (why.empty() || now() > end) return why;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

bool send_frame(int descriptor, const Frame& frame) {
  Header header;
  header.kind = static_cast<std::uint32_t>(frame.kind);
  header.group = frame.group;
  header.number = frame.number;
  header.detail = frame.detail;
  header.bytes = frame.payload.size();
  return send_all(descriptor, reinterpret_cast<const char*>(&header), sizeof header) &&
         send_all(descriptor, frame.payload.data(), frame.payload.size());
}

bool receive_frame(int descriptor, Frame& frame) {
  Header header;
  if (!receive_all(descriptor, reinterpret_cast<char*>(&header), sizeof header)) return false;
  if (!whole(header)) return false;
  frame = frame_of(header);
  frame.payload.resize(header.bytes);
  return receive_all(descriptor, frame.payload.data(), frame.payload.size());
}

bool take_frame(std::vector<char>& received, Frame& frame) {
  Header header;
  if (received.size() < sizeof header) return false;
  std::memcpy(&header, received.data(), sizeof header);
  if (!whole(header)) throw std::runtime_error("no frame of ours");
  if (received.size() - sizeof header < header.bytes) return false;
  frame = frame_of(header);
  const auto begin = received.begin() + sizeof header;
  const auto end = begin + static_cast<std::ptrdiff_t>(header.bytes);
  frame.payload.assign(begin, end);
  received.erase(received.begin(), end);
  return true;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string node_name() {
  char name[64] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace hydraulis::rendezvous
