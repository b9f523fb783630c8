#include "tests/cuda_emulator/fibers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulator {

namespace {

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

void leave_stack([[maybe_unused]] void** fake, [[maybe_unused]] const void* bottom,
                 [[maybe_unused]] std::size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(fake, bottom, bytes);
#endif
}

void on_stack([[maybe_unused]] void* fake, [[maybe_unused]] const void** bottom,
              [[maybe_unused]] std::size_t* bytes) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake, bottom, bytes);
#endif
}

}  // namespace

Fiber::Fiber() {
  // One page below the stack that nobody may touch: too deep a stack ends the program at once.
  void* mapped = mmap(nullptr, kStackBytes + page_bytes(), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<char*>(mapped);
  mprotect(mapping_, page_bytes(), PROT_NONE);
  stack_ = mapping_ + page_bytes();
}

Fiber::~Fiber() { munmap(mapping_, kStackBytes + page_bytes()); }

void Fiber::start(const std::function<void()>& body) {
  body_ = &body;
  ended_ = false;
  fake_inside_ = nullptr;
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(stack_, kStackBytes);  // frames of an abandoned body
#endif
  inside_ = boost::context::detail::make_fcontext(stack_ + kStackBytes, kStackBytes, enter);
}

void Fiber::enter(boost::context::detail::transfer_t transfer) {
  auto* self = static_cast<Fiber*>(transfer.data);
  on_stack(nullptr, &self->outside_stack_, &self->outside_bytes_);
  self->outside_ = transfer.fctx;
  (*self->body_)();
  self->leave(true);
  std::abort();
}

void Fiber::resume() {
  leave_stack(&fake_outside_, stack_, kStackBytes);
  inside_ = boost::context::detail::jump_fcontext(inside_, this).fctx;
  on_stack(fake_outside_, nullptr, nullptr);
}

void Fiber::leave(bool for_good) {
  ended_ = for_good;
  leave_stack(for_good ? nullptr : &fake_inside_, outside_stack_, outside_bytes_);
  outside_ = boost::context::detail::jump_fcontext(outside_, nullptr).fctx;
  on_stack(fake_inside_, &outside_stack_, &outside_bytes_);
}

void Fiber::suspend() { leave(false); }

void Fiber::abandon() {
  leave(true);
  std::abort();
}

}  // namespace emulator
