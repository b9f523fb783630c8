#include "kernels/matrix.h"

namespace hydraulis {

const char* to_string(DataType type) {
  switch (type) {
    case DataType::f32:
      return "f32";
    case DataType::f64:
      return "f64";
    case DataType::bf16:
      return "bf16";
  }
  return "?";
}

}  // namespace hydraulis
