#include <bit>
#include <cstring>

#include "tests/cuda_emulator/include/emulated_tensor_core.h"

namespace emulator {

namespace {

float half_of(std::uint32_t pair, int which) {
  return std::bit_cast<float>(which == 0 ? pair << 16 : pair & 0xFFFF0000U);
}

struct Product {
  float* d;
  const std::uint32_t* a;
  const std::uint32_t* b;
};

void complete_product(void* const parts[32], std::uint32_t mask) {
  if (mask != 0xFFFFFFFFU) fail("mma.sync without all lanes of the warp");
  float a[16][16];
  float b[16][8];
  for (int l = 0; l < 32; ++l) {
    const auto& part = *static_cast<const Product*>(parts[l]);
    const int g = l / 4;
    for (int half = 0; half < 2; ++half) {
      const int p = l % 4 * 2 + half;
      a[g][p] = half_of(part.a[0], half);
      a[g + 8][p] = half_of(part.a[1], half);
      a[g][p + 8] = half_of(part.a[2], half);
      a[g + 8][p + 8] = half_of(part.a[3], half);
      b[p][g] = half_of(part.b[0], half);
      b[p + 8][g] = half_of(part.b[1], half);
    }
  }
  float product[16][8] = {};
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) {
      for (int j = 0; j < 8; ++j) product[i][j] += a[i][k] * b[k][j];
    }
  }
  for (int l = 0; l < 32; ++l) {
    const auto& part = *static_cast<const Product*>(parts[l]);
    for (int i = 0; i < 4; ++i) part.d[i] += product[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
  }
}

struct Load {
  const char* row;
  std::uint32_t* r;
  bool transposed;
};

void complete_load(void* const parts[32], std::uint32_t mask) {
  if (mask != 0xFFFFFFFFU) fail("ldmatrix without all lanes of the warp");
  std::uint16_t matrices[4][8][8];
  for (int l = 0; l < 32; ++l) {
    std::memcpy(matrices[l / 8][l % 8], static_cast<const Load*>(parts[l])->row, 16);
  }
  for (int l = 0; l < 32; ++l) {
    const auto& part = *static_cast<const Load*>(parts[l]);
    const int g = l / 4;
    const int p = l % 4 * 2;
    for (int m = 0; m < 4; ++m) {
      const std::uint32_t low = part.transposed ? matrices[m][p][g] : matrices[m][g][p];
      const std::uint32_t high = part.transposed ? matrices[m][p + 1][g] : matrices[m][g][p + 1];
      part.r[m] = low | high << 16;
    }
  }
}

}  // namespace

void mma_16x8x16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                 const char* file, int line) {
  static const WarpWork work{"mma.sync", complete_product};
  Product part{d, a, b};
  warp_together(work, 0xFFFFFFFFU, &part, {file, line});
}

void load_matrices(std::uint32_t (&r)[4], const void* row, bool transposed, const char* file,
                   int line) {
  static const WarpWork work{"ldmatrix", complete_load};
  if (!region_of(row, 16).shared) fail("ldmatrix from memory that is not shared");
  touch(row, 16, AccessKind::read);
  Load part{static_cast<const char*>(row), r, transposed};
  warp_together(work, 0xFFFFFFFFU, &part, {file, line});
}

}  // namespace emulator
