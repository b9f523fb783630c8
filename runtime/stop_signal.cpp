#include "runtime/stop_signal.h"

#include <unistd.h>

#include <csignal>

namespace hydraulis {
namespace {

volatile std::sig_atomic_t requested = 0;
volatile std::sig_atomic_t grace = 0;

extern "C" void on_stop_signal(int) {
  if (requested != 0) return;
  requested = 1;
  alarm(static_cast<unsigned>(grace));  // SIGALRM's default action ends the process
}

}  // namespace

void catch_stop_signals(int grace_seconds) {
  grace = grace_seconds;
  struct sigaction action = {};
  action.sa_handler = on_stop_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

bool stop_requested() { return requested != 0; }

void stop_agreed() { alarm(0); }

}  // namespace hydraulis
