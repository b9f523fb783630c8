// What GCC calls before every memory access of code that is compiled with -fsanitize=thread. Linked
// without that option, these take the thread sanitizer's place and look at kernels only.

#include <cstddef>
#include <cstdint>

#include "tests/cuda_emulator/block.h"

#ifndef __SANITIZE_ADDRESS__

namespace {
void on_access(const void* address, std::size_t bytes, emulator::AccessKind kind) {
  if (emulator::in_kernel()) emulator::touch_any(address, bytes, kind);
}
}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier): the compiler's names
extern "C" {

void __tsan_init() {}

#define HOOKS(BYTES)                                        \
  void __tsan_read##BYTES(void* address) {                  \
    on_access(address, BYTES, emulator::AccessKind::read);  \
  }                                                         \
  void __tsan_write##BYTES(void* address) {                 \
    on_access(address, BYTES, emulator::AccessKind::write); \
  }                                                         \
  void __tsan_unaligned_read##BYTES(void* address) {        \
    on_access(address, BYTES, emulator::AccessKind::read);  \
  }                                                         \
  void __tsan_unaligned_write##BYTES(void* address) {       \
    on_access(address, BYTES, emulator::AccessKind::write); \
  }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
#undef HOOKS

void __tsan_read_range(void* address, std::size_t bytes) {
  on_access(address, bytes, emulator::AccessKind::read);
}
void __tsan_write_range(void* address, std::size_t bytes) {
  on_access(address, bytes, emulator::AccessKind::write);
}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// Atomics of host code (shared pointers, guards of static variables): kernels use CUDA's.
#define ATOMICS(BITS)                                                                              \
  using a##BITS = std::uint##BITS##_t;                                                             \
  a##BITS __tsan_atomic##BITS##_load(const volatile a##BITS* a, int) {                             \
    return __atomic_load_n(a, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                \
  void __tsan_atomic##BITS##_store(volatile a##BITS* a, a##BITS v, int) {                          \
    __atomic_store_n(a, v, __ATOMIC_SEQ_CST);                                                      \
  }                                                                                                \
  a##BITS __tsan_atomic##BITS##_exchange(volatile a##BITS* a, a##BITS v, int) {                    \
    return __atomic_exchange_n(a, v, __ATOMIC_SEQ_CST);                                            \
  }                                                                                                \
  a##BITS __tsan_atomic##BITS##_fetch_add(volatile a##BITS* a, a##BITS v, int) {                   \
    return __atomic_fetch_add(a, v, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  a##BITS __tsan_atomic##BITS##_fetch_sub(volatile a##BITS* a, a##BITS v, int) {                   \
    return __atomic_fetch_sub(a, v, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  bool __tsan_atomic##BITS##_compare_exchange_strong(volatile a##BITS* a, a##BITS* expected,       \
                                                     a##BITS v, int, int) {                        \
    return __atomic_compare_exchange_n(a, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                \
  bool __tsan_atomic##BITS##_compare_exchange_weak(volatile a##BITS* a, a##BITS* expected,         \
                                                   a##BITS v, int, int) {                          \
    return __atomic_compare_exchange_n(a, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }
ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)
#undef ATOMICS

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)

#endif
