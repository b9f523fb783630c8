#pragma once

#include <algorithm>
#include <cstdint>

#if defined(__SANITIZE_THREAD__)
#include <atomic>
#include <thread>
#include <vector>
#else
#include <omp.h>
#endif

namespace hydraulis::cpu {

/// body(part, worker) for parts 0 … parts − 1, each once, on at most `threads` threads; parts are
/// handed out in order to whoever is free, so results must not depend on who runs what. worker <
/// threads names the thread, for its workspace. The body must not throw.
template <typename Body>
void parallel(int threads, std::int64_t parts, Body body) {
  const int workers = static_cast<int>(std::min<std::int64_t>(threads, parts));
  if (workers <= 1) {
    for (std::int64_t part = 0; part < parts; ++part) body(part, 0);
    return;
  }
#if defined(__SANITIZE_THREAD__)
  // The thread sanitizer does not see the barriers of GCC's OpenMP; it sees these.
  std::atomic<std::int64_t> next = 0;
  std::vector<std::thread> team;
  for (int worker = 0; worker < workers; ++worker) {
    team.emplace_back([&, worker] {
      for (std::int64_t part = next++; part < parts; part = next++) body(part, worker);
    });
  }
  for (std::thread& member : team) member.join();
#else
#pragma omp parallel for schedule(dynamic, 1) num_threads(workers)
  for (std::int64_t part = 0; part < parts; ++part) body(part, omp_get_thread_num());
#endif
}

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Part `part` of `parts` nearly equal parts of [0, count).
inline Range part_of(std::int64_t count, std::int64_t parts, std::int64_t part) {
  const std::int64_t each = count / parts;
  const std::int64_t longer = count % parts;
  const std::int64_t begin = part * each + std::min(part, longer);
  return {begin, begin + each + (part < longer ? 1 : 0)};
}

/// Elements that one thread finishes in about the time that starting a team takes.
inline constexpr std::int64_t kSerialElements = 16384;

/// How many threads a kernel over this many elements uses: the rule for all element-wise kernels.
inline int threads_for(std::int64_t elements, int threads) {
  return static_cast<int>(std::clamp<std::int64_t>(elements / kSerialElements, 1, threads));
}

/// body(range) over contiguous ranges of rows, as many as threads are worth it.
template <typename Body>
void parallel_rows(int threads, std::int64_t rows, std::int64_t elements_per_row, Body body) {
  if (rows <= 0) return;
  const int workers = threads_for(rows * elements_per_row, threads);
  const std::int64_t parts = std::min<std::int64_t>(workers, rows);
  parallel(workers, parts, [&](std::int64_t part, int) { body(part_of(rows, parts, part)); });
}

}  // namespace hydraulis::cpu
