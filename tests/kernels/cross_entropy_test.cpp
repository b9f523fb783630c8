#include <gtest/gtest.h>

#include "tests/kernels/compute_fixture.h"

namespace hydraulis {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The vocabulary's columns cut into parts, each padded to one width, as devices hold them.
struct Part {
  std::int64_t begin, end;
};

template <typename T>
class CrossEntropy : public testing::Test {
 protected:
  /// Loss of each row and the gradient, computed over the parts with the reductions between them
  /// done here, against the same in double precision over the whole.
  static void check(const Data<T>& logits, const std::vector<Part>& parts,
                    const std::vector<std::int32_t>& targets, double ulps) {
    const Backend cpu;
    const std::int64_t t = logits.rows();
    std::int64_t width = 0;
    for (const Part& part : parts) width = std::max(width, part.end - part.begin + 2);
    std::vector<Data<T>> locals;
    Data<T> most(t, 1);
    Data<T> sums(t, 2);
    most.fill(-kInfinity);
    sums.fill(0);
    for (const Part& part : parts) {
      Data<T> local(t, width);  // padding stays NaN: it must not be read
      for (std::int64_t i = 0; i < t; ++i) {
        for (std::int64_t j = part.begin; j < part.end; ++j) {
          local(i, j - part.begin) = static_cast<T>(logits.at(i, j));
        }
      }
      locals.push_back(local);
      Data<T> own(t, 1);
      cpu->cross_entropy_max(local, part.end - part.begin, own, *cpu.stream);
      for (std::int64_t i = 0; i < t; ++i) most(i, 0) = std::max(most(i, 0), own(i, 0));
      if (part.begin == part.end) {
        for (std::int64_t i = 0; i < t; ++i) ASSERT_EQ(own.at(i, 0), -kInfinity);
      }
    }
    for (std::size_t p = 0; p < parts.size(); ++p) {
      Data<T> own(t, 2);
      cpu->cross_entropy_sums(locals[p], parts[p].end - parts[p].begin, parts[p].begin, targets,
                              most, own, *cpu.stream);
      for (std::int64_t i = 0; i < t; ++i) {
        sums(i, 0) += own(i, 0);
        sums(i, 1) += own(i, 1);
      }
    }
    std::vector<double> top(static_cast<std::size_t>(t), -kInfinity);
    std::vector<double> sum(static_cast<std::size_t>(t), 0);
    for (std::int64_t i = 0; i < t; ++i) {
      const auto row = static_cast<std::size_t>(i);
      for (std::int64_t j = 0; j < logits.columns(); ++j) {
        top[row] = std::max(top[row], logits.at(i, j));
      }
      for (std::int64_t j = 0; j < logits.columns(); ++j) {
        sum[row] += std::exp(logits.at(i, j) - top[row]);
      }
    }
    for (std::int64_t i = 0; i < t; ++i) {
      const std::int64_t target = targets[static_cast<std::size_t>(i)];
      if (target < 0) {
        ASSERT_EQ(sums.at(i, 1), 0);
        continue;
      }
      const double loss = std::log(sums.at(i, 0)) - sums.at(i, 1);
      const auto row = static_cast<std::size_t>(i);
      const double expected = std::log(sum[row]) + (top[row] - logits.at(i, target));
      ASSERT_NEAR(loss, expected, ulps * rounding<T>() * std::max(1.0, expected)) << "row " << i;
    }
    for (std::size_t p = 0; p < parts.size(); ++p) {
      cpu->cross_entropy_backward(locals[p], parts[p].end - parts[p].begin, parts[p].begin, targets,
                                  most, sums, *cpu.stream);
      expect_matrix<T>(
          locals[p],
          [&](std::int64_t i, std::int64_t j) {
            const std::int64_t column = parts[p].begin + j;
            const std::int64_t target = targets[static_cast<std::size_t>(i)];
            if (target < 0 || column >= parts[p].end) return 0.0;
            const auto row = static_cast<std::size_t>(i);
            return std::exp(logits.at(i, column) - top[row]) / sum[row] -
                   (column == target ? 1 : 0);
          },
          ulps);
    }
  }

  static std::vector<std::int32_t> some_targets(std::int64_t t, std::int64_t vocabulary,
                                                Random& random) {
    std::vector<std::int32_t> targets;
    for (std::int64_t i = 0; i < t; ++i) {
      targets.push_back(
          static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocabulary) + 1)) - 1);
    }
    return targets;
  }
};
TYPED_TEST_SUITE(CrossEntropy, Precisions);

TYPED_TEST(CrossEntropy, PartsOfTheVocabulary) {
  using T = TypeParam;
  Random random(12);
  for (const std::int64_t vocabulary : {1, 2, 15, 64, 101, 1003}) {
    for (const std::int64_t t : {0, 1, 37}) {
      Data<T> logits(t, vocabulary);
      logits.fill(random, 3);
      const auto targets = this->some_targets(t, vocabulary, random);
      this->check(logits, {{0, vocabulary}}, targets, 32);
      const std::int64_t cut = (vocabulary + 1) / 2;
      this->check(logits, {{0, cut}, {cut, vocabulary}}, targets, 32);
      // A device that holds padding only.
      this->check(logits, {{0, vocabulary}, {vocabulary, vocabulary}}, targets, 32);
    }
  }
}

TYPED_TEST(CrossEntropy, HugeLogitsNeitherOverflowNorVanish) {
  using T = TypeParam;
  Data<T> logits(3, 40);
  logits.fill([](std::int64_t i, std::int64_t j) {
    return i == 0 ? 1e30 : i == 1 ? -1e30 : 5000.0 - static_cast<double>(j);
  });
  this->check(logits, {{0, 17}, {17, 40}}, {3, 20, 39}, 64);
}

TYPED_TEST(CrossEntropy, LogitsOfMinusInfinityHaveNoProbability) {
  using T = TypeParam;
  Random random(5);
  Data<T> logits(2, 50);
  logits.fill(random);
  for (std::int64_t j = 0; j < 25; ++j) logits(0, j) = -std::numeric_limits<T>::infinity();
  this->check(logits, {{0, 25}, {25, 50}}, {30, 7}, 32);
}

TYPED_TEST(CrossEntropy, NotANumberIsNotHidden) {
  using T = TypeParam;
  const Backend cpu;
  Data<T> logits(1, 33);
  logits.fill(0.5);
  logits(0, 20) = std::numeric_limits<T>::quiet_NaN();
  Data<T> most(1, 1);
  Data<T> sums(1, 2);
  cpu->cross_entropy_max(logits, 33, most, *cpu.stream);
  const std::vector<std::int32_t> targets = {0};
  cpu->cross_entropy_sums(logits, 33, 0, targets, most, sums, *cpu.stream);
  EXPECT_TRUE(std::isnan(sums.at(0, 0)));
}

TEST(CrossEntropyGradient, AgreesWithFiniteDifferences) {
  const Backend cpu;
  Random random(9);
  Data<double> logits(4, 30);
  logits.fill(random);
  const std::vector<std::int32_t> targets = {29, -1, 0, 11};
  Data<double> most(4, 1);
  Data<double> sums(4, 2);
  const auto loss = [&] {
    cpu->cross_entropy_max(logits, 28, most, *cpu.stream);
    cpu->cross_entropy_sums(logits, 28, 2, targets, most, sums, *cpu.stream);
    double sum = 0;
    for (std::int64_t i = 0; i < 4; ++i) {
      if (targets[static_cast<std::size_t>(i)] >= 0) {
        sum += std::log(sums.at(i, 0)) + most.at(i, 0);
        // The target's logit counts only where it is held.
        if (targets[static_cast<std::size_t>(i)] >= 2) sum -= sums.at(i, 1) + most.at(i, 0);
      }
    }
    return sum;
  };
  loss();
  Data<double> gradient = logits;
  cpu->cross_entropy_backward(gradient, 28, 2, targets, most, sums, *cpu.stream);
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t j = 0; j < 30; ++j) {
      ASSERT_NEAR(gradient.at(i, j), derivative(logits, i, j, loss), 1e-8) << i << ", " << j;
    }
  }
}

}  // namespace
}  // namespace hydraulis
