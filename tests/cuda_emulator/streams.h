#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "tests/cuda_emulator/clock.h"

// Streams whose work waits until somebody asks for it, and then runs in a random order that the
// program allows. What works only because the device is usually fast enough fails here.
struct CUstream_st;
struct CUevent_st;

namespace emulator {

using Stream = CUstream_st;
using Event = CUevent_st;

/// Every call of the emulated libraries holds it.
std::recursive_mutex& lock();

/// Starts the random choices anew; some seeds run work as soon as it is queued, some late.
void set_seed(std::uint64_t seed);
std::uint64_t random_below(std::uint64_t n);

Stream* make_stream();
/// What is on it still runs.
void destroy_stream(Stream* stream);
bool known(const Stream* stream);
bool empty(const Stream& stream);
/// Queues work. Its name is what faults call it; it starts after what is on the stream, and, where
/// `ready` is given, when that says so.
void enqueue(Stream& stream, std::string name, std::function<void()> run,
             std::function<bool()> ready = {});
/// Queues what is done even after a fault: memory must go back.
void enqueue_always(Stream& stream, std::string name, std::function<void()> run);

Event* make_event();
void destroy_event(Event* event);
void record(Event& event, Stream& stream);
void wait(Stream& stream, const Event& event);
bool done(const Event& event);
double seconds(const Event& event);

/// Runs work until the stream is empty, the event done; the host then knows what it waited for.
void synchronize(Stream& stream);
void synchronize(const Event& event);
void synchronize_all();
/// What the host learns by asking.
void host_knows(const Stream& stream);
void host_knows(const Event& event);
/// Runs a little of what is queued, as time passes for a host that only asks.
void let_time_pass();

}  // namespace emulator
