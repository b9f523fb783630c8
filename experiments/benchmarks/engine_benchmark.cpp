// Hold model (pop the earliest event, schedule one a random delay later) with a constant number of
// events pending: the engine against std::priority_queue over 24-byte records.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <queue>
#include <vector>

#include "base/random.h"
#include "sim/engine.h"

namespace {

// Exponential delays, drawn beforehand so that only the queues are timed.
const std::vector<double>& delays() {
  static const std::vector<double> values = [] {
    hydraulis::Random random(1);
    std::vector<double> drawn(1U << 16U);
    for (double& value : drawn) value = -std::log1p(-random.uniform());
    return drawn;
  }();
  return values;
}

void hold_engine(benchmark::State& state) {
  const auto& delay = delays();
  std::size_t next = 0;
  const auto draw = [&] { return delay[next++ & 0xffffU]; };
  hydraulis::EventQueue queue;
  const auto pending = static_cast<std::uint32_t>(state.range(0));
  for (std::uint32_t i = 0; i < pending; ++i) queue.push(draw(), i);
  for (auto _ : state) {
    const hydraulis::Event event = queue.pop();
    queue.push(event.time + draw(), event.payload);
  }
  state.SetItemsProcessed(state.iterations());
}

// The whole engine: clock, checks of every time, count and handler included.
void hold_engine_run(benchmark::State& state) {
  const auto& delay = delays();
  std::size_t next = 0;
  const auto draw = [&] { return delay[next++ & 0xffffU]; };
  const auto pending = static_cast<std::uint32_t>(state.range(0));
  constexpr std::uint64_t kEvents = 1'000'000;
  std::uint64_t events = 0;
  for (auto _ : state) {
    hydraulis::Engine engine;
    std::uint64_t left = kEvents;
    for (std::uint32_t i = 0; i < pending; ++i) engine.schedule_at(draw(), i);
    engine.run([&](std::uint32_t payload) {
      if (left == 0) return;
      --left;
      engine.schedule_after(draw(), payload);
    });
    events += engine.events();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(events));
}

struct Record {
  double time;
  std::uint64_t sequence;
  std::uint64_t payload;
};
static_assert(sizeof(Record) == 24);
struct Later {
  bool operator()(const Record& a, const Record& b) const {
    return a.time != b.time ? a.time > b.time : a.sequence > b.sequence;
  }
};

void hold_priority_queue(benchmark::State& state) {
  const auto& delay = delays();
  std::size_t next = 0;
  const auto draw = [&] { return delay[next++ & 0xffffU]; };
  std::priority_queue<Record, std::vector<Record>, Later> queue;
  std::uint64_t sequence = 0;
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    queue.push({draw(), sequence++, static_cast<std::uint64_t>(i)});
  }
  for (auto _ : state) {
    const Record record = queue.top();
    queue.pop();
    queue.push({record.time + draw(), sequence++, record.payload});
  }
  state.SetItemsProcessed(state.iterations());
}

BENCHMARK(hold_engine)->Arg(64)->Arg(1024)->Arg(65536);
BENCHMARK(hold_engine_run)->Arg(64)->Arg(1024)->Arg(65536)->Unit(benchmark::kMillisecond);
BENCHMARK(hold_priority_queue)->Arg(64)->Arg(1024)->Arg(65536);

}  // namespace
