#pragma once

#include <cstddef>
#include <functional>

namespace hydraulis {

/// Calls work(i) once for every i in [0, count), on up to `threads` threads, the calling one among
/// them; returns when all are done. What work() throws is thrown here, of several failures that of
/// the lowest index, so the outcome does not depend on the number of threads. Work items must not
/// share what they write. Throws InputError unless threads is in [1, 1024].
void for_each_index(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

}  // namespace hydraulis
