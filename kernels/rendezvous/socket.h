#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// TCP as the rendezvous uses it.
namespace hydraulis::rendezvous {

/// A descriptor that is closed when it goes out of scope. Movable.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();
  int get() const { return descriptor_; }
  bool open() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

/// What a frame is for.
enum class Kind : std::uint32_t {
  // From a rank.
  hello,      ///< detail: its number; payload: Hello
  reduce,     ///< detail: see reduction_detail(); payload: numbers
  gather,     ///< payload: this rank's part
  broadcast,  ///< detail: root in the group; payload: at the root
  group,      ///< payload: numbers of ranks; the result is the group's number
  missing,    ///< who has not come to this operation? the result is a text
  abort,      ///< detail: exit code
  goodbye,
  // To a rank.
  welcome,
  result,
  failure,  ///< payload: why the operation failed
  end,      ///< detail: exit code; payload: why all end at once, empty where it has been said
};

struct Frame {
  Kind kind = Kind::hello;
  std::uint32_t group = 0;   ///< 0: all ranks
  std::uint64_t number = 0;  ///< of the operation in its group
  std::int32_t detail = 0;
  std::vector<char> payload;
};

/// What a rank says of itself when it comes.
struct Hello {
  char mark[8] = {};  ///< kMark
  std::int32_t size = 0;
  char run[116] = {};
  char node[64] = {};
};
inline constexpr char kMark[] = "hydraul";

/// A socket that listens on all addresses. Throws InputError when the port is taken.
Socket listen_on(int port);
/// Tries until the time is over; then an error text, else empty.
std::string connect_to(const std::string& host, int port, double seconds, Socket& socket);
/// False when the other side is gone. Frames of several threads do not mix when the caller holds a
/// lock.
bool send_frame(int descriptor, const Frame& frame);
/// Waits for a whole frame; false when the other side is gone or sent no frame.
bool receive_frame(int descriptor, Frame& frame);
/// Takes a frame off the front of what has been received, if it is whole. Throws std::runtime_error
/// for what is no frame.
bool take_frame(std::vector<char>& received, Frame& frame);

/// Seconds of a steady clock.
double now();
std::string node_name();

}  // namespace hydraulis::rendezvous
