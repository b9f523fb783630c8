#include "tests/cuda_emulator/streams.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include "tests/cuda_emulator/faults.h"
#include "tests/cuda_emulator/omissions.h"

namespace {

struct Work {
  std::string name;
  std::function<void()> run;
  std::function<bool()> ready;
  bool always = false;   // runs even after a fault: the host waits for it
  emulator::Clock host;  // what the host knew to be done when it queued this
};

struct Mark {
  bool done = false;
  emulator::Clock clock;
  double seconds = 0;
};

}  // namespace

struct CUstream_st {
  std::size_t id = 0;
  std::deque<Work> queue;
  emulator::Clock clock;  // what is done when everything that has run on it is
  std::uint32_t count = 0;
  bool destroyed = false;  // goes when it is empty
};

struct CUevent_st {
  std::shared_ptr<Mark> mark;  // of the last record
};

namespace emulator {

namespace {

struct Scheduler {
  std::vector<std::unique_ptr<Stream>> streams;
  std::size_t streams_made = 0;
  std::mt19937_64 random{1};
  double eagerness = 0;
  bool running = false;
  std::condition_variable_any changed;  // something was queued or has run
};
Scheduler& scheduler() {
  static Scheduler all;
  return all;
}

Clock& host_clock() {
  thread_local Clock clock;
  return clock;
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void run_first(Stream& stream) {
  Work work = std::move(stream.queue.front());
  stream.clock.merge(work.host);
  Operation operation;
  operation.stream = stream.id;
  operation.index = ++stream.count;
  operation.name = work.name;
  operation.before = stream.clock;
  stream.clock.set(stream.id, stream.count);
  begin_operation(std::move(operation));
  scheduler().running = true;
  if (work.always || !faulty()) work.run();
  scheduler().running = false;
  stream.queue.pop_front();
  scheduler().changed.notify_all();
}

/// Runs one operation that may run, chosen at random; false if there is none.
bool run_any() {
  std::vector<Stream*> candidates;
  for (const auto& stream : scheduler().streams) {
    if (stream->queue.empty()) continue;
    const Work& first = stream->queue.front();
    if (!first.ready || first.ready() || faulty()) candidates.push_back(stream.get());
  }
  if (candidates.empty()) return false;
  run_first(*candidates[random_below(candidates.size())]);
  return true;
}

void put(Stream& stream, Work work) {
  work.host = host_clock();
  stream.queue.push_back(std::move(work));
  scheduler().changed.notify_all();
  while (static_cast<double>(random_below(1000)) < 1000 * scheduler().eagerness && run_any()) {
  }
}

template <typename Done>
void run_until(Done done) {
  constexpr int kMostLooks = 10'000;
  int looks = 0;
  while (!done()) {
    if (run_any()) {
      looks = 0;
      continue;
    }
    // Only another rank can help now; one that is a process does not say when.
    const auto status = scheduler().changed.wait_for(lock(), std::chrono::milliseconds(2));
    looks = status == std::cv_status::timeout ? looks + 1 : 0;
    if (looks > kMostLooks && !done()) report("deadlock: nothing that is queued can start");
  }
}

}  // namespace

std::recursive_mutex& lock() {
  static std::recursive_mutex mutex;
  return mutex;
}

void set_seed(std::uint64_t seed) {
  scheduler().random.seed(seed);
  const double choices[] = {0, 0.2, 0.9};
  scheduler().eagerness = choices[seed % 3];
}

std::uint64_t random_below(std::uint64_t n) { return scheduler().random() % n; }

Stream* make_stream() {
  auto stream = std::make_unique<Stream>();
  stream->id = scheduler().streams_made++;  // never reused: clocks count by it
  scheduler().streams.push_back(std::move(stream));
  return scheduler().streams.back().get();
}

void destroy_stream(Stream* stream) {
  stream->destroyed = true;
  auto& streams = scheduler().streams;
  std::erase_if(streams, [](const auto& s) { return s->destroyed && s->queue.empty(); });
  if (streams.empty()) forget_operations();  // all are done, and everything comes after them
}

bool known(const Stream* stream) {
  return std::any_of(scheduler().streams.begin(), scheduler().streams.end(),
                     [&](const auto& s) { return s.get() == stream && !s->destroyed; });
}

bool empty(const Stream& stream) { return stream.queue.empty(); }

void enqueue(Stream& stream, std::string name, std::function<void()> run,
             std::function<bool()> ready) {
  put(stream, {std::move(name), std::move(run), std::move(ready), false, {}});
}

void enqueue_always(Stream& stream, std::string name, std::function<void()> run) {
  put(stream, {std::move(name), std::move(run), {}, true, {}});
}

Event* make_event() { return new Event; }
void destroy_event(Event* event) { delete event; }

void record(Event& event, Stream& stream) {
  auto mark = std::make_shared<Mark>();
  event.mark = mark;
  enqueue_always(stream, "an event", [mark, &stream] {
    mark->done = true;
    mark->clock = stream.clock;
    mark->seconds = now_seconds();
  });
}

void wait(Stream& stream, const Event& event) {
  if (event.mark == nullptr || next_event_wait_left_out()) return;  // nothing to wait for
  enqueue(
      stream, "a wait for an event",
      [mark = event.mark, &stream] { stream.clock.merge(mark->clock); },
      [mark = event.mark] { return mark->done; });
}

bool done(const Event& event) { return event.mark == nullptr || event.mark->done; }
double seconds(const Event& event) { return event.mark == nullptr ? 0 : event.mark->seconds; }

void host_knows(const Stream& stream) { host_clock().merge(stream.clock); }
void host_knows(const Event& event) {
  if (event.mark != nullptr) host_clock().merge(event.mark->clock);
}

void synchronize(Stream& stream) {
  run_until([&] { return stream.queue.empty(); });
  host_knows(stream);
}

void synchronize(const Event& event) {
  run_until([&] { return done(event); });
  host_knows(event);
}

void synchronize_all() {
  // Streams come and go in other threads while this one waits.
  const auto& streams = scheduler().streams;
  run_until([&] {
    return std::all_of(streams.begin(), streams.end(),
                       [](const auto& s) { return s->queue.empty(); });
  });
  for (const auto& stream : streams) host_knows(*stream);
}

void let_time_pass() {
  for (std::uint64_t n = random_below(4); n > 0 && run_any(); --n) {
  }
}

}  // namespace emulator
