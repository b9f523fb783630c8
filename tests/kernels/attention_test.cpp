#include <gtest/gtest.h>
#include <sys/mman.h>

#include <fstream>

#include "tests/kernels/compute_fixture.h"

namespace hydraulis {
namespace {

/// Segments of a pack: sequences one after another, each attending to itself.
std::vector<AttentionSegment> pack(const std::vector<std::int64_t>& lengths) {
  std::vector<AttentionSegment> segments;
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    segments.push_back({begin, length, begin, length, true});
    begin += length;
  }
  return segments;
}

std::int64_t tokens(const std::vector<std::int64_t>& lengths) {
  std::int64_t sum = 0;
  for (const std::int64_t length : lengths) sum += length;
  return sum;
}

/// Attention of every query over all keys that its segments show it, the textbook way, and its
/// gradients for a given dout.
struct Reference {
  template <typename T>
  Reference(const AttentionShape& shape, const std::vector<AttentionSegment>& segments,
            const Data<T>& q, const Data<T>& k, const Data<T>& v, const Data<T>* dout = nullptr)
      : out(q.rows(), q.columns()),
        lse(q.rows(), shape.heads),
        dq(q.rows(), q.columns()),
        dk(k.rows(), k.columns()),
        dv(k.rows(), k.columns()) {
    dq.fill(0);
    dk.fill(0);
    dv.fill(0);
    const std::int64_t d = shape.head_dim;
    for (std::int64_t i = 0; i < q.rows(); ++i) {
      std::vector<std::int64_t> keys;
      for (const AttentionSegment& s : segments) {
        const std::int64_t own = i - s.query_begin;
        if (own < 0 || own >= s.query_count) continue;
        for (std::int64_t j = 0; j < (s.causal ? own + 1 : s.key_count); ++j) {
          keys.push_back(s.key_begin + j);
        }
      }
      if (keys.empty()) continue;
      for (int head = 0; head < shape.heads; ++head) {
        const std::int64_t hq = head * d;
        const std::int64_t hk = head / (shape.heads / shape.kv_heads) * d;
        std::vector<double> p;
        double most = -std::numeric_limits<double>::infinity();
        for (const std::int64_t j : keys) {
          double score = 0;
          for (std::int64_t c = 0; c < d; ++c) score += q.at(i, hq + c) * k.at(j, hk + c);
          p.push_back(score * shape.scale);
          most = std::max(most, p.back());
        }
        double sum = 0;
        for (double& x : p) sum += x = std::exp(x - most);
        for (double& x : p) x /= sum;
        lse(i, head) = most + std::log(sum);
        double delta = 0;
        for (std::int64_t c = 0; c < d; ++c) {
          double total = 0;
          for (std::size_t n = 0; n < keys.size(); ++n) total += p[n] * v.at(keys[n], hk + c);
          out(i, hq + c) = total;
          if (dout != nullptr) delta += total * dout->at(i, hq + c);
        }
        if (dout == nullptr) continue;
        for (std::size_t n = 0; n < keys.size(); ++n) {
          double dp = 0;
          for (std::int64_t c = 0; c < d; ++c) dp += dout->at(i, hq + c) * v.at(keys[n], hk + c);
          const double ds = p[n] * (dp - delta) * shape.scale;
          for (std::int64_t c = 0; c < d; ++c) {
            dv(keys[n], hk + c) += p[n] * dout->at(i, hq + c);
            dk(keys[n], hk + c) += ds * q.at(i, hq + c);
            dq(i, hq + c) += ds * k.at(keys[n], hk + c);
          }
        }
      }
    }
  }
  Data<double> out, lse, dq, dk, dv;
};

template <typename T>
struct Inputs {
  Inputs(const AttentionShape& shape, std::int64_t queries, std::int64_t keys, std::uint64_t seed,
         double size = 1)
      : q(queries, shape.heads * shape.head_dim, 4),
        k(keys, shape.kv_heads * shape.head_dim, 1),
        v(keys, shape.kv_heads * shape.head_dim, 7),
        dout(queries, shape.heads * shape.head_dim) {
    Random random(seed);
    // Uniform with variance 1: cheap enough for the large packs.
    const auto draw = [&](double factor) {
      return [&random, factor](std::int64_t, std::int64_t) {
        return factor * std::sqrt(12.0) * (random.uniform() - 0.5);
      };
    };
    q.fill(draw(size));
    k.fill(draw(size));
    v.fill(draw(1));
    dout.fill(draw(1));
  }
  Data<T> q, k, v, dout;
};

template <typename T>
struct Results {
  Results(const AttentionShape& shape, std::int64_t queries, std::int64_t keys)
      : out(queries, shape.heads * shape.head_dim),
        lse(queries, shape.heads),
        delta(queries, shape.heads),
        dq(queries, shape.heads * shape.head_dim),
        dk(keys, shape.kv_heads * shape.head_dim),
        dv(keys, shape.kv_heads * shape.head_dim) {}
  bool same_bits(const Results& other) const {
    return out.same_bits(other.out) && lse.same_bits(other.lse) && dq.same_bits(other.dq) &&
           dk.same_bits(other.dk) && dv.same_bits(other.dv);
  }
  Data<T> out, lse, delta, dq, dk, dv;
};

/// Forward, delta and backward with gradients that start at `start`.
template <typename T>
Results<T> run(const Backend& cpu, const AttentionShape& shape,
               const std::vector<AttentionSegment>& segments, const Inputs<T>& x,
               double start = 0) {
  Results<T> r(shape, x.q.rows(), x.k.rows());
  cpu->attention(shape, segments, x.q, x.k, x.v, false, r.out, r.lse, *cpu.stream);
  cpu->attention_delta(shape, r.out, x.dout, r.delta, *cpu.stream);
  r.dq.fill(start);
  r.dk.fill(start);
  r.dv.fill(start);
  cpu->attention_backward(shape, segments, x.q, x.k, x.v, x.dout, r.lse, r.delta, r.dq, r.dk, r.dv,
                          *cpu.stream);
  return r;
}

template <typename T>
void expect_same(const Data<T>& result, const Data<double>& reference, double ulps,
                 double plus = 0) {
  double size = 1;
  for (std::int64_t i = 0; i < reference.rows(); ++i) {
    for (std::int64_t j = 0; j < reference.columns(); ++j) {
      if (!std::isnan(reference.at(i, j))) size = std::max(size, std::abs(reference.at(i, j)));
    }
  }
  for (std::int64_t i = 0; i < result.rows(); ++i) {
    for (std::int64_t j = 0; j < result.matrix.stride; ++j) {
      const bool written = j < result.columns() && !std::isnan(reference.at(i, j));
      if (!written) {
        ASSERT_TRUE(std::isnan(result.at(i, j))) << "written at (" << i << ", " << j << ")";
        continue;
      }
      ASSERT_NEAR(result.at(i, j), reference.at(i, j) + plus, ulps * rounding<T>() * size)
          << "at (" << i << ", " << j << ")";
    }
  }
}

template <typename T>
class Attention : public testing::Test {
 protected:
  static void check(const AttentionShape& shape, const std::vector<AttentionSegment>& segments,
                    std::int64_t queries, std::int64_t keys, double size = 1, int threads = 2) {
    const Backend cpu(threads);
    const Inputs<T> x(shape, queries, keys, static_cast<std::uint64_t>(queries * 31 + keys), size);
    const Results<T> r = run(cpu, shape, segments, x, 0.25);
    const Reference reference(shape, segments, x.q, x.k, x.v, &x.dout);
    {
      SCOPED_TRACE("lse");
      expect_same(r.lse, reference.lse, 16 * size * size);
    }
    {
      SCOPED_TRACE("out");
      expect_same(r.out, reference.out, 32 * size * size);
    }
    {
      SCOPED_TRACE("dv");
      expect_same(r.dv, reference.dv, 32 * size * size, 0.25);
    }
    {
      SCOPED_TRACE("dk");
      expect_same(r.dk, reference.dk, 64 * size * size, 0.25);
    }
    {
      SCOPED_TRACE("dq");
      expect_same(r.dq, reference.dq, 64 * size * size, 0.25);
    }
  }
};
TYPED_TEST_SUITE(Attention, Precisions);

AttentionShape shape_of(int heads, int kv_heads, int head_dim) {
  return {heads, kv_heads, head_dim, 1 / std::sqrt(static_cast<double>(head_dim))};
}

TYPED_TEST(Attention, PacksOfUnequalSequences) {
  for (const auto& lengths : std::vector<std::vector<std::int64_t>>{{1},
                                                                    {2},
                                                                    {15},
                                                                    {16, 17},
                                                                    {31, 1, 33},
                                                                    {64},
                                                                    {65, 3},
                                                                    {128, 0, 127},
                                                                    {5, 200, 1, 1, 77},
                                                                    {0, 0, 9, 0}}) {
    SCOPED_TRACE(testing::PrintToString(lengths));
    const std::int64_t t = tokens(lengths);
    this->check(shape_of(2, 2, 8), pack(lengths), t, t);
    this->check(shape_of(4, 2, 18), pack(lengths), t, t);
  }
}

TYPED_TEST(Attention, HeadSizesAndGroups) {
  for (const AttentionShape& shape :
       {shape_of(1, 1, 2), shape_of(3, 1, 6), shape_of(8, 2, 64), shape_of(2, 1, 80),
        shape_of(1, 1, 128), shape_of(5, 5, 1), shape_of(6, 3, 33)}) {
    SCOPED_TRACE(testing::Message()
                 << shape.heads << "/" << shape.kv_heads << " heads of " << shape.head_dim);
    this->check(shape, pack({40, 71}), 111, 111);
  }
}

TYPED_TEST(Attention, SegmentsOfUnequalSidesAndOutsiders) {
  const AttentionShape shape = shape_of(4, 2, 16);
  // A full stretch, queries in no segment, keys seen by nobody, keys seen by two stretches, and
  // segments out of order.
  this->check(shape,
              {{70, 33, 100, 33, true},
               {0, 20, 5, 77, false},
               {20, 5, 0, 3, false},
               {30, 40, 60, 40, true},
               {103, 1, 140, 1, false}},
              110, 150);
  this->check(shape, {{0, 64, 0, 200, false}}, 64, 200);
  this->check(shape, {{0, 150, 0, 1, false}}, 150, 1);
  this->check(shape, {}, 4, 4);
  this->check(shape, {{2, 0, 0, 4, false}, {2, 0, 4, 0, true}, {0, 3, 2, 0, false}}, 4, 4);
}

TYPED_TEST(Attention, ScoresFarApart) {
  // Scores up to hundreds: without the running maximum the exponentials overflow.
  this->check(shape_of(2, 2, 32), pack({150}), 150, 150, 12);
}

// One key head and one long sequence: the threads must share its queries.
TYPED_TEST(Attention, OneKeyHeadForManyThreads) {
  this->check(shape_of(3, 1, 18), pack({3, 400, 30}), 433, 433, 1, 4);
  this->check(shape_of(2, 2, 16), {{0, 300, 100, 200, false}, {300, 33, 150, 33, true}}, 340, 300,
              1, 3);
}

TYPED_TEST(Attention, RingStretchesMergeToTheWhole) {
  using T = TypeParam;
  const Backend cpu;
  const AttentionShape shape = shape_of(4, 2, 24);
  const std::int64_t n = 180;
  const Inputs<T> x(shape, n, n, 5);
  const Results<T> whole = run(cpu, shape, pack({n}), x);

  // Zigzag over two devices: this one has the first and the last quarter, its peer the middle.
  const std::int64_t quarter = n / 4;
  Results<T> parts(shape, n, n);
  parts.out.fill(0);
  parts.lse.fill(-std::numeric_limits<double>::infinity());
  parts.dq.fill(0);
  parts.dk.fill(0);
  parts.dv.fill(0);
  const std::vector<std::vector<AttentionSegment>> rounds = {
      {{0, quarter, 0, quarter, true}, {3 * quarter, quarter, 3 * quarter, quarter, true}},
      {{3 * quarter, quarter, 0, quarter, false}},
      {{3 * quarter, quarter, quarter, 2 * quarter, false}}};
  for (const auto& round : rounds) {
    cpu->attention(shape, round, x.q, x.k, x.v, true, parts.out, parts.lse, *cpu.stream);
  }
  cpu->attention_delta(shape, parts.out, x.dout, parts.delta, *cpu.stream);
  for (const auto& round : rounds) {
    cpu->attention_backward(shape, round, x.q, x.k, x.v, x.dout, parts.lse, parts.delta, parts.dq,
                            parts.dk, parts.dv, *cpu.stream);
  }
  const std::vector<AttentionSegment> all = {{0, quarter, 0, quarter, true},
                                             {3 * quarter, quarter, 0, 3 * quarter, false},
                                             {3 * quarter, quarter, 3 * quarter, quarter, true}};
  const Reference reference(shape, all, x.q, x.k, x.v, &x.dout);
  for (std::int64_t i = 0; i < n; ++i) {
    if (i >= quarter && i < 3 * quarter) continue;
    for (std::int64_t j = 0; j < x.q.columns(); ++j) {
      ASSERT_NEAR(parts.out.at(i, j), whole.out.at(i, j), 32 * rounding<T>());
      ASSERT_NEAR(parts.dq.at(i, j), whole.dq.at(i, j), 64 * rounding<T>());
    }
    for (int head = 0; head < shape.heads; ++head) {
      ASSERT_NEAR(parts.lse.at(i, head), whole.lse.at(i, head), 32 * rounding<T>());
    }
  }
  expect_same(parts.dk, reference.dk, 64);
  expect_same(parts.dv, reference.dv, 64);
}

TYPED_TEST(Attention, TheSameCallGivesTheSameBits) {
  using T = TypeParam;
  const AttentionShape shape = shape_of(6, 2, 32);
  const std::vector<std::int64_t> lengths = {300, 5, 64, 17, 1, 130};
  const std::int64_t t = tokens(lengths);
  const Inputs<T> x(shape, t, t, 9);
  for (const int threads : {1, 2, 3}) {
    const Backend cpu(threads);
    const Results<T> first = run(cpu, shape, pack(lengths), x);
    for (int trial = 0; trial < 5; ++trial) {
      EXPECT_TRUE(first.same_bits(run(cpu, shape, pack(lengths), x))) << threads;
    }
    const Backend serial(1);
    const Results<T> alone = run(serial, shape, pack(lengths), x);
    expect_matrix<T>(
        first.dk, [&](std::int64_t i, std::int64_t j) { return alone.dk.at(i, j); }, 64);
    expect_matrix<T>(
        first.out, [&](std::int64_t i, std::int64_t j) { return alone.out.at(i, j); }, 16);
  }
}

TYPED_TEST(Attention, SequencesDoNotSeeEachOther) {
  using T = TypeParam;
  const Backend cpu;
  const AttentionShape shape = shape_of(2, 1, 16);
  const auto segments = pack({50, 50});
  Inputs<T> x(shape, 100, 100, 21);
  const Results<T> before = run(cpu, shape, segments, x);
  for (std::int64_t j = 0; j < x.k.columns(); ++j) x.k(3, j) += T(1);
  const Results<T> after = run(cpu, shape, segments, x);
  for (std::int64_t i = 50; i < 100; ++i) {
    for (std::int64_t j = 0; j < x.q.columns(); ++j) {
      ASSERT_EQ(before.out.at(i, j), after.out.at(i, j));
      ASSERT_EQ(before.dq.at(i, j), after.dq.at(i, j));
    }
  }
}

// Lengths 0 and 1 only: fewer tokens than sequences, grouped heads.
TYPED_TEST(Attention, ZerosAndOnes) {
  std::ifstream file(HYDRAULIS_TEST_DATA "/lengths/zeros_and_ones.txt");
  std::vector<std::int64_t> lengths;
  for (std::int64_t length = 0; file >> length;) lengths.push_back(length);
  ASSERT_FALSE(lengths.empty());
  ASSERT_LT(tokens(lengths), static_cast<std::int64_t>(lengths.size()));
  this->check(shape_of(4, 2, 8), pack(lengths), tokens(lengths), tokens(lengths));
}

TYPED_TEST(Attention, EightyThousandTinySequences) {
  using T = TypeParam;
  const Backend cpu;
  const AttentionShape shape = shape_of(2, 1, 2);
  const std::int64_t sequences = 80000;
  const auto segments = pack(std::vector<std::int64_t>(sequences, 16));
  const Inputs<T> x(shape, 16 * sequences, 16 * sequences, 17);
  const Results<T> r = run(cpu, shape, segments, x);
  Random random(1);
  for (int trial = 0; trial < 20; ++trial) {
    const std::int64_t first =
        trial == 0 ? 16 * (sequences - 1) : static_cast<std::int64_t>(random.below(sequences)) * 16;
    Inputs<T> own(shape, 16, 16, 0);
    for (std::int64_t i = 0; i < 16; ++i) {
      for (std::int64_t j = 0; j < x.q.columns(); ++j) {
        own.q(i, j) = static_cast<T>(x.q.at(first + i, j));
        own.dout(i, j) = static_cast<T>(x.dout.at(first + i, j));
      }
      for (std::int64_t j = 0; j < x.k.columns(); ++j) {
        own.k(i, j) = static_cast<T>(x.k.at(first + i, j));
        own.v(i, j) = static_cast<T>(x.v.at(first + i, j));
      }
    }
    const Reference reference(shape, pack({16}), own.q, own.k, own.v, &own.dout);
    for (std::int64_t i = 0; i < 16; ++i) {
      for (std::int64_t j = 0; j < x.q.columns(); ++j) {
        ASSERT_NEAR(r.out.at(first + i, j), reference.out.at(i, j), 32 * rounding<T>());
        ASSERT_NEAR(r.dq.at(first + i, j), reference.dq.at(i, j), 64 * rounding<T>());
      }
      for (std::int64_t j = 0; j < x.k.columns(); ++j) {
        ASSERT_NEAR(r.dk.at(first + i, j), reference.dk.at(i, j), 64 * rounding<T>());
        ASSERT_NEAR(r.dv.at(first + i, j), reference.dv.at(i, j), 64 * rounding<T>());
      }
    }
  }
}

TYPED_TEST(Attention, RefusesWrongSegments) {
  using T = TypeParam;
  const Backend cpu;
  const AttentionShape shape = shape_of(2, 1, 8);
  const Inputs<T> x(shape, 10, 10, 1);
  Results<T> r(shape, 10, 10);
  for (const std::vector<AttentionSegment>& segments :
       std::vector<std::vector<AttentionSegment>>{{{0, 11, 0, 10, false}},
                                                  {{0, 5, 6, 5, true}},
                                                  {{0, 5, 0, 4, true}},
                                                  {{-1, 2, 0, 2, true}},
                                                  {{0, 5, 0, 5, true}, {4, 2, 5, 2, true}},
                                                  {{4, 2, 5, 2, true}, {0, 5, 0, 5, true}}}) {
    EXPECT_THROW(cpu->attention(shape, segments, x.q, x.k, x.v, false, r.out, r.lse, *cpu.stream),
                 std::logic_error);
  }
  EXPECT_THROW(
      cpu->attention(shape_of(3, 2, 8), {}, x.q, x.k, x.v, false, r.out, r.lse, *cpu.stream),
      std::logic_error);
}

TEST(AttentionGradient, AgreesWithFiniteDifferences) {
  const Backend cpu;
  const AttentionShape shape = shape_of(4, 2, 6);
  const std::vector<AttentionSegment> segments = {
      {0, 9, 0, 9, true}, {9, 5, 9, 20, false}, {14, 21, 9, 21, true}};
  Inputs<double> x(shape, 35, 30, 4);
  const Results<double> r = run(cpu, shape, segments, x);
  const auto loss = [&] {
    Results<double> now(shape, 35, 30);
    cpu->attention(shape, segments, x.q, x.k, x.v, false, now.out, now.lse, *cpu.stream);
    double sum = 0;
    for (std::int64_t i = 0; i < 35; ++i) {
      for (std::int64_t j = 0; j < x.q.columns(); ++j) sum += now.out.at(i, j) * x.dout.at(i, j);
    }
    return sum;
  };
  Random random(2);
  const auto check = [&](Data<double>& input, const Data<double>& gradient) {
    for (int trial = 0; trial < 60; ++trial) {
      const auto i = static_cast<std::int64_t>(random.below(input.rows()));
      const auto j = static_cast<std::int64_t>(random.below(input.columns()));
      ASSERT_NEAR(gradient.at(i, j), derivative(input, i, j, loss), 1e-8) << i << ", " << j;
    }
  };
  check(x.q, r.dq);
  check(x.k, r.dk);
  check(x.v, r.dv);
}

// Queries and keys so far apart that offsets pass 2^31 elements; only the pages touched exist.
TEST(AttentionOffsets, PassTwoToThe31) {
  const AttentionShape shape = shape_of(2, 1, 16);
  const std::int64_t stride = std::int64_t{1} << 28;
  const std::int64_t t = 12;
  const auto bytes = static_cast<std::size_t>(((t - 1) * stride + 4096) * 4);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  // q, k, v, out, lse, dout, delta, dq, dk, dv side by side in one wide matrix.
  const Matrix wide{memory, DataType::f32, t, 4096, stride};
  const auto columns = [&](std::int64_t begin, std::int64_t count) {
    return wide.column_range(begin * 64, count);
  };
  const Inputs<float> x(shape, t, t, 3);
  const Backend cpu;
  cpu->convert(x.q, columns(0, 32), *cpu.stream);
  cpu->convert(x.k, columns(1, 16), *cpu.stream);
  cpu->convert(x.v, columns(2, 16), *cpu.stream);
  cpu->convert(x.dout, columns(3, 32), *cpu.stream);
  const auto segments = pack({5, 7});
  cpu->attention(shape, segments, columns(0, 32), columns(1, 16), columns(2, 16), false,
                 columns(4, 32), columns(5, 2), *cpu.stream);
  cpu->attention_delta(shape, columns(4, 32), columns(3, 32), columns(6, 2), *cpu.stream);
  cpu->attention_backward(shape, segments, columns(0, 32), columns(1, 16), columns(2, 16),
                          columns(3, 32), columns(5, 2), columns(6, 2), columns(7, 32),
                          columns(8, 16), columns(9, 16), *cpu.stream);
  const Results<float> near = run(cpu, shape, segments, x);
  const auto expect_equal = [&](const Matrix& far, const Data<float>& result) {
    Data<float> back(result.rows(), result.columns());
    cpu->convert(far, back, *cpu.stream);
    EXPECT_TRUE(back.same_bits(result));
  };
  expect_equal(columns(4, 32), near.out);
  expect_equal(columns(5, 2), near.lse);
  expect_equal(columns(7, 32), near.dq);
  expect_equal(columns(8, 16), near.dk);
  expect_equal(columns(9, 16), near.dv);
  munmap(memory, bytes);
}

}  // namespace
}  // namespace hydraulis
