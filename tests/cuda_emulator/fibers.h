#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

// The threads of a block as fibers of one host thread. Stacks are kept from block to block.
namespace emulator {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs `body` from its start at the next resume(); what ran before is forgotten, not unwound.
  void start(const std::function<void()>& body);
  /// Runs until the body suspends or ends. Called outside fibers.
  void resume();
  /// Gives control back to who resumed. Called inside.
  void suspend();
  /// The same, for good.
  [[noreturn]] void abandon();
  bool ended() const { return ended_; }
  bool owns(const void* address) const {
    return address >= stack_ && address < stack_ + kStackBytes;
  }

 private:
  static constexpr std::size_t kStackBytes = 256 * 1024;
  static void enter(boost::context::detail::transfer_t transfer);
  void leave(bool for_good);

  char* mapping_ = nullptr;
  char* stack_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  boost::context::detail::fcontext_t inside_ = nullptr;
  boost::context::detail::fcontext_t outside_ = nullptr;
  bool ended_ = true;
  // What the address sanitizer keeps of each side while the other runs.
  void* fake_inside_ = nullptr;
  void* fake_outside_ = nullptr;
  const void* outside_stack_ = nullptr;
  std::size_t outside_bytes_ = 0;
};

}  // namespace emulator
