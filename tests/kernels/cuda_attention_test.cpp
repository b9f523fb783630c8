#include <gtest/gtest.h>

#include <numeric>

#include "tests/kernels/cuda_fixture.h"

namespace hydraulis {
namespace {

std::vector<AttentionSegment> pack(const std::vector<std::int64_t>& lengths) {
  std::vector<AttentionSegment> segments;
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    segments.push_back({begin, length, begin, length, true});
    begin += length;
  }
  return segments;
}

/// Attention the textbook way, in double precision; NaN where no segment has a query. With dout,
/// gradients too, starting from 0.
struct Reference {
  Reference(const AttentionShape& shape, const std::vector<AttentionSegment>& segments,
            const Data<double>& q, const Data<double>& k, const Data<double>& v,
            const Data<double>* dout = nullptr)
      : out(q.rows(), q.columns()),
        lse(q.rows(), shape.heads),
        delta(q.rows(), shape.heads),
        dq(q.rows(), q.columns()),
        dk(k.rows(), k.columns()),
        dv(k.rows(), k.columns()) {
    dq.fill(0);
    dk.fill(0);
    dv.fill(0);
    const std::int64_t d = shape.head_dim;
    for (const AttentionSegment& s : segments) {
      for (std::int64_t i = 0; i < s.query_count && s.key_count > 0; ++i) {
        const std::int64_t row = s.query_begin + i;
        const std::int64_t keys = s.causal ? i + 1 : s.key_count;
        for (int head = 0; head < shape.heads; ++head) {
          const std::int64_t hq = head * d;
          const std::int64_t hk = head / (shape.heads / shape.kv_heads) * d;
          std::vector<double> p;
          for (std::int64_t j = 0; j < keys; ++j) {
            double score = 0;
            for (std::int64_t c = 0; c < d; ++c) {
              score += q.at(row, hq + c) * k.at(s.key_begin + j, hk + c);
            }
            p.push_back(score * shape.scale);
          }
          const double most = *std::max_element(p.begin(), p.end());
          double sum = 0;
          for (double& x : p) sum += x = std::exp(x - most);
          lse(row, head) = most + std::log(sum);
          for (double& x : p) x /= sum;
          const auto at = [&](std::int64_t j) { return p[static_cast<std::size_t>(j)]; };
          double product = 0;
          for (std::int64_t c = 0; c < d; ++c) {
            double total = 0;
            for (std::int64_t j = 0; j < keys; ++j) total += at(j) * v.at(s.key_begin + j, hk + c);
            out(row, hq + c) = total;
            if (dout != nullptr) product += total * dout->at(row, hq + c);
          }
          delta(row, head) = product;
          for (std::int64_t j = 0; j < keys && dout != nullptr; ++j) {
            const std::int64_t key = s.key_begin + j;
            double dp = 0;
            for (std::int64_t c = 0; c < d; ++c) dp += dout->at(row, hq + c) * v.at(key, hk + c);
            const double ds = at(j) * (dp - product) * shape.scale;
            for (std::int64_t c = 0; c < d; ++c) {
              dv(key, hk + c) += at(j) * dout->at(row, hq + c);
              dk(key, hk + c) += ds * q.at(row, hq + c);
              dq(row, hq + c) += ds * k.at(key, hk + c);
            }
          }
        }
      }
    }
  }
  Data<double> out, lse, delta, dq, dk, dv;
};

/// Probabilities and results are rounded to bf16; scores are sums in f32.
void expect_rows(const DeviceMatrix& result, const Data<double>& reference, double tolerance) {
  const Data<double> values = result.get();
  for (std::int64_t i = 0; i < values.rows(); ++i) {
    for (std::int64_t j = 0; j < values.columns(); ++j) {
      const double expected = reference.at(i, j);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(values.at(i, j))) << "written at (" << i << ", " << j << ")";
      } else {
        ASSERT_NEAR(values.at(i, j), expected, tolerance * (1 + std::abs(expected)))
            << "at (" << i << ", " << j << ")";
      }
    }
  }
}

struct Inputs {
  Inputs(const CudaBackend& gpu, const AttentionShape& shape, std::int64_t queries,
         std::int64_t keys, std::uint64_t seed, double size = 1)
      : q(gpu, DataType::bf16, queries, shape.heads * shape.head_dim),
        k(gpu, DataType::bf16, keys, shape.kv_heads * shape.head_dim, 16),
        v(gpu, DataType::bf16, keys, shape.kv_heads * shape.head_dim, 24) {
    Random random(seed);
    q0 = std::make_unique<Data<double>>(q.set(random, size));
    k0 = std::make_unique<Data<double>>(k.set(random, size));
    v0 = std::make_unique<Data<double>>(v.set(random));
  }
  DeviceMatrix q, k, v;
  std::unique_ptr<Data<double>> q0, k0, v0;
};

void check(const AttentionShape& shape, const std::vector<AttentionSegment>& segments,
           std::int64_t queries, std::int64_t keys, std::uint64_t seed, double size = 1) {
  const CudaBackend gpu(seed);
  const Inputs x(gpu, shape, queries, keys, seed, size);
  const Reference reference(shape, segments, *x.q0, *x.k0, *x.v0);
  for (const DataType type : {DataType::bf16, DataType::f32}) {
    DeviceMatrix out(gpu, type, queries, shape.heads * shape.head_dim, 2);
    DeviceMatrix lse(gpu, DataType::f32, queries, shape.heads);
    gpu->attention(shape, segments, x.q, x.k, x.v, false, out, lse, *gpu.stream);
    expect_rows(lse, reference.lse, 1e-5 * size * size);
    expect_rows(out, reference.out, 0.01);
  }
  ASSERT_EQ(emulator::take_fault(), "");
}

/// Gradients for a dout, added to 0.25 each.
void check_backward(const AttentionShape& shape, const std::vector<AttentionSegment>& segments,
                    std::int64_t queries, std::int64_t keys, std::uint64_t seed) {
  const CudaBackend gpu(seed);
  const Inputs x(gpu, shape, queries, keys, seed);
  DeviceMatrix dout(gpu, DataType::bf16, queries, shape.heads * shape.head_dim);
  Random random(seed + 100);
  const auto dout0 = dout.set(random);
  const Reference reference(shape, segments, *x.q0, *x.k0, *x.v0, &dout0);
  for (const DataType type : {DataType::bf16, DataType::f32}) {
    DeviceMatrix out(gpu, DataType::f32, queries, shape.heads * shape.head_dim, 2);
    DeviceMatrix lse(gpu, DataType::f32, queries, shape.heads);
    DeviceMatrix delta(gpu, DataType::f32, queries, shape.heads);
    DeviceMatrix dq(gpu, type, queries, shape.heads * shape.head_dim, 4);
    DeviceMatrix dk(gpu, type, keys, shape.kv_heads * shape.head_dim, 2);
    DeviceMatrix dv(gpu, type, keys, shape.kv_heads * shape.head_dim, 6);
    Data<double> zeros(queries, shape.heads * shape.head_dim);
    out.set(zeros.fill(0));  // rows that no segment has
    gpu->attention(shape, segments, x.q, x.k, x.v, false, out, lse, *gpu.stream);
    gpu->attention_delta(shape, out, dout, delta, *gpu.stream);
    dq.set(0.25);
    dk.set(0.25);
    dv.set(0.25);
    gpu->attention_backward(shape, segments, x.q, x.k, x.v, dout, lse, delta, dq, dk, dv,
                            *gpu.stream);
    const auto expect = [](const char* name, const DeviceMatrix& result,
                           const Data<double>& expected) {
      SCOPED_TRACE(name);
      Data<double> sum = expected;
      sum.fill([&](std::int64_t i, std::int64_t j) { return 0.25 + expected.at(i, j); });
      expect_rows(result, sum, 0.02);
    };
    expect("dq", dq, reference.dq);
    expect("dk", dk, reference.dk);
    expect("dv", dv, reference.dv);
  }
  ASSERT_EQ(emulator::take_fault(), "");
}

AttentionShape heads_of(int dim, int heads, int kv_heads) {
  return {heads, kv_heads, dim, 1 / std::sqrt(static_cast<double>(dim))};
}

TEST(CudaAttention, PacksOfSequences) {
  for (const int dim : {64, 128}) {
    const auto shape = heads_of(dim, 2, 1);
    check(shape, pack({1}), 1, 1, 1);
    check(shape, pack({130, 1, 17, 0, 64}), 212, 212, 2);
    check(shape, pack({300}), 300, 300, 3);
  }
}

TEST(CudaAttention, OtherHeadSizes) {
  for (const int dim : {32, 80, 96}) {
    check(heads_of(dim, 2, 1), pack({70, 1, 17}), 88, 88, 1);
    check(heads_of(dim, 1, 1), {{0, 7, 0, 1, false}, {7, 30, 1, 69, false}}, 37, 70, 2);
  }
}

TEST(CudaAttention, GroupedQueries) {
  check(heads_of(64, 6, 2), pack({70, 33}), 103, 103, 4);
  check(heads_of(128, 3, 3), pack({40}), 40, 40, 5);
}

TEST(CudaAttention, RowsOutsideSegmentsAreLeftAlone) {
  const auto shape = heads_of(64, 1, 1);
  check(shape, {{3, 20, 7, 20, true}, {40, 30, 0, 90, false}}, 80, 100, 6);
  check(shape, {{0, 0, 0, 5, false}, {5, 6, 3, 0, false}}, 20, 20, 7);
  check(shape, {}, 4, 4, 8);
}

TEST(CudaAttention, EveryKeyOfAFullSegmentIsSeen) {
  check(heads_of(128, 1, 1), {{0, 7, 0, 1, false}, {7, 140, 1, 99, false}}, 147, 100, 9);
}

TEST(CudaAttention, LargeScoresNeitherOverflowNorVanish) {
  check(heads_of(64, 1, 1), pack({90}), 90, 90, 10, 12);
}

// A sequence's keys in two parts, as ranks of a ring see them.
TEST(CudaAttention, PartsAreMerged) {
  for (const DataType type : {DataType::f32, DataType::bf16}) {
    const CudaBackend gpu(11);
    const auto shape = heads_of(64, 2, 1);
    const Inputs x(gpu, shape, 150, 150, 12);
    const std::vector<AttentionSegment> whole = {{0, 150, 0, 150, false}};
    const Reference reference(shape, whole, *x.q0, *x.k0, *x.v0);
    DeviceMatrix out(gpu, type, 150, 128);
    DeviceMatrix lse(gpu, DataType::f32, 150, 2);
    out.set(0);
    lse.set(-std::numeric_limits<double>::infinity());
    for (const auto& [begin, count] : {std::pair{0, 30}, std::pair{30, 100}, std::pair{130, 20}}) {
      const std::vector<AttentionSegment> part = {{0, 150, begin, count, false}};
      gpu->attention(shape, part, x.q, x.k, x.v, true, out, lse, *gpu.stream);
    }
    expect_rows(lse, reference.lse, 1e-5);
    expect_rows(out, reference.out, 0.01);
  }
  ASSERT_EQ(emulator::take_fault(), "");
}

TEST(CudaAttentionBackward, PacksOfSequences) {
  for (const int dim : {64, 128}) {
    const auto shape = heads_of(dim, 2, 1);
    check_backward(shape, pack({1}), 1, 1, 1);
    check_backward(shape, pack({70, 1, 17, 0, 130}), 218, 218, 2);
  }
}

TEST(CudaAttentionBackward, OtherHeadSizes) {
  for (const int dim : {32, 80, 96}) {
    check_backward(heads_of(dim, 2, 1), pack({70, 1, 17}), 88, 88, 1);
    check_backward(heads_of(dim, 1, 1), {{0, 7, 0, 1, false}, {7, 30, 1, 69, false}}, 37, 70, 2);
  }
}

TEST(CudaAttentionBackward, GroupedQueriesAndOtherSegments) {
  check_backward(heads_of(64, 6, 2), pack({70, 33}), 103, 103, 4);
  check_backward(heads_of(64, 1, 1), {{3, 20, 7, 20, true}, {40, 30, 0, 90, false}}, 80, 100, 6);
  // Keys in three segments.
  check_backward(heads_of(64, 1, 1),
                 {{0, 9, 0, 70, false}, {9, 70, 0, 70, true}, {79, 2, 60, 20, false}}, 81, 80, 8);
  check_backward(heads_of(128, 1, 1), {{0, 7, 0, 1, false}, {7, 80, 1, 99, false}}, 90, 100, 9);
  check_backward(heads_of(64, 1, 1), {{0, 0, 0, 5, false}, {5, 6, 3, 0, false}}, 20, 20, 7);
}

TEST(CudaAttentionBackward, RepeatsUnderAnyOrder) {
  std::vector<std::vector<char>> first;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const CudaBackend gpu(seed);
    const auto shape = heads_of(64, 2, 1);
    const Inputs x(gpu, shape, 200, 200, 1);
    DeviceMatrix dout(gpu, DataType::bf16, 200, 128);
    Random random(3);
    dout.set(random);
    DeviceMatrix out(gpu, DataType::bf16, 200, 128);
    DeviceMatrix lse(gpu, DataType::f32, 200, 2);
    DeviceMatrix delta(gpu, DataType::f32, 200, 2);
    DeviceMatrix dq(gpu, DataType::bf16, 200, 128);
    DeviceMatrix dk(gpu, DataType::f32, 200, 64);
    DeviceMatrix dv(gpu, DataType::f32, 200, 64);
    for (DeviceMatrix* gradient : {&dq, &dk, &dv}) gradient->set(0);
    const auto segments = pack({150, 50});
    gpu->attention(shape, segments, x.q, x.k, x.v, false, out, lse, *gpu.stream);
    gpu->attention_delta(shape, out, dout, delta, *gpu.stream);
    gpu->attention_backward(shape, segments, x.q, x.k, x.v, dout, lse, delta, dq, dk, dv,
                            *gpu.stream);
    const std::vector<std::vector<char>> bytes = {dq.bytes(), dk.bytes(), dv.bytes()};
    if (seed == 0) first = bytes;
    EXPECT_EQ(bytes, first);
  }
}

TEST(CudaAttention, RepeatsUnderAnyOrder) {
  std::vector<char> first;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const CudaBackend gpu(seed);
    const auto shape = heads_of(64, 2, 1);
    const Inputs x(gpu, shape, 200, 200, 1);
    DeviceMatrix out(gpu, DataType::bf16, 200, 128);
    DeviceMatrix lse(gpu, DataType::f32, 200, 2);
    gpu->attention(shape, pack({150, 50}), x.q, x.k, x.v, false, out, lse, *gpu.stream);
    const auto bytes = out.bytes();
    if (seed == 0) first = bytes;
    EXPECT_EQ(bytes, first);
  }
}

TEST(CudaAttention, WhatItCannotDoIsRefused) {
  const CudaBackend gpu;
  const auto refused = [&](int dim, DataType type, std::int64_t gap) {
    const auto shape = heads_of(dim, 1, 1);
    DeviceMatrix q(gpu, type, 4, dim, gap);
    DeviceMatrix out(gpu, type, 4, dim);
    DeviceMatrix lse(gpu, DataType::f32, 4, 1);
    EXPECT_THROW(gpu->attention(shape, pack({4}), q, q, q, false, out, lse, *gpu.stream),
                 std::logic_error);
  };
  refused(48, DataType::bf16, 8);
  refused(256, DataType::bf16, 8);
  refused(64, DataType::f32, 8);
  refused(64, DataType::bf16, 3);
}

}  // namespace
}  // namespace hydraulis
