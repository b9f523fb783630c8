#include "costmodel/device_power.h"

#include <array>

namespace hydraulis {
namespace {

struct Board {
  const char* device;
  double watts;
};

constexpr std::array kBoards = {Board{"a800", 400}, Board{"a100", 400}, Board{"h100", 700},
                                Board{"h20", 400}, Board{"h200", 700}};

}  // namespace

double data_sheet_watts(const std::string& device) {
  for (const Board& board : kBoards) {
    if (device == board.device) return board.watts;
  }
  return 0;
}

}  // namespace hydraulis
