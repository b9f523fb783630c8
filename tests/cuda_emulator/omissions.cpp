#include "tests/cuda_emulator/omissions.h"

namespace emulator {

namespace {
Omission omission = Omission::none;
unsigned number = 0;
unsigned event_waits = 0;
}  // namespace

void leave_out(Omission what, unsigned which) {
  omission = what;
  number = which;
  event_waits = 0;
}

bool left_out(Omission what, unsigned which) { return omission == what && number == which; }

bool next_event_wait_left_out() { return left_out(Omission::event_wait, event_waits++); }

}  // namespace emulator
