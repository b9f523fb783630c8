#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/cuda_fixture.h"

namespace hydraulis {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Two parts of a vocabulary as two devices hold them, the reductions between them done here; what
/// lies behind a part's vocabulary stays unwritten.
void check(const CudaBackend& gpu, DataType type, std::int64_t gap, const Data<double>& values,
           std::int64_t cut, const std::vector<std::int32_t>& targets, double ulps) {
  const std::int64_t t = values.rows();
  const std::int64_t vocabulary = values.columns();
  struct Part {
    std::int64_t begin, end;
  };
  const Part parts[] = {{0, cut}, {cut, vocabulary}};
  const std::int64_t width = std::max(cut, vocabulary - cut) + 2;
  std::vector<DeviceMatrix> logits;
  Data<double> kept(t, vocabulary);
  Data<double> most(t, 1);
  most.fill(-kInfinity);
  for (const Part& part : parts) {
    const std::int64_t own = part.end - part.begin;
    logits.emplace_back(gpu, type, t, width, gap);
    for (std::int64_t i = 0; i < t && own > 0; ++i) {
      std::vector<char> row;
      for (std::int64_t j = 0; j < own; ++j) {
        kept(i, part.begin + j) = rounded(type, values.at(i, part.begin + j));
        const auto single = static_cast<float>(kept.at(i, part.begin + j));
        const auto bits = std::bit_cast<std::uint32_t>(single) >> (type == DataType::bf16 ? 16 : 0);
        const auto* bytes = reinterpret_cast<const char*>(&bits);
        row.insert(row.end(), bytes, bytes + size_of(type));
      }
      gpu.device->copy_to_device(logits.back().matrix().row_range(i, 1).data, row.data(),
                                 own * size_of(type), *gpu.stream);
    }
    DeviceMatrix own_max(gpu, DataType::f32, t, 1);
    gpu->cross_entropy_max(logits.back(), own, own_max, *gpu.stream);
    const auto result = own_max.get();
    for (std::int64_t i = 0; i < t; ++i) {
      ASSERT_FALSE(std::isnan(result.at(i, 0)));
      most(i, 0) = std::max(most.at(i, 0), result.at(i, 0));
    }
  }
  DeviceMatrix all_max(gpu, DataType::f32, t, 1);
  DeviceMatrix all_sums(gpu, DataType::f32, t, 2);
  all_max.set(most);
  Data<double> sums(t, 2);
  sums.fill(0);
  for (std::size_t p = 0; p < 2; ++p) {
    DeviceMatrix own(gpu, DataType::f32, t, 2);
    gpu->cross_entropy_sums(logits[p], parts[p].end - parts[p].begin, parts[p].begin, targets,
                            all_max, own, *gpu.stream);
    const auto result = own.get();
    for (std::int64_t i = 0; i < t; ++i) {
      for (std::int64_t c = 0; c < 2; ++c) sums(i, c) += result.at(i, c);
    }
  }
  all_sums.set(sums);
  std::vector<double> top;
  std::vector<double> total;
  for (std::int64_t i = 0; i < t; ++i) {
    double greatest = -kInfinity;
    for (std::int64_t j = 0; j < vocabulary; ++j) greatest = std::max(greatest, kept.at(i, j));
    double sum = 0;
    for (std::int64_t j = 0; j < vocabulary; ++j) sum += std::exp(kept.at(i, j) - greatest);
    ASSERT_EQ(most.at(i, 0), greatest);
    top.push_back(greatest);
    total.push_back(sum);
    const std::int64_t target = targets[static_cast<std::size_t>(i)];
    if (target < 0) continue;
    const double loss = std::log(sums.at(i, 0)) - sums.at(i, 1);
    const double expected = std::log(sum) + (greatest - kept.at(i, target));
    ASSERT_NEAR(loss, expected, ulps * rounding<float>() * std::max(1.0, expected));
  }
  for (std::size_t p = 0; p < 2; ++p) {
    gpu->cross_entropy_backward(logits[p], parts[p].end - parts[p].begin, parts[p].begin, targets,
                                all_max, all_sums, *gpu.stream);
    expect_close(
        logits[p],
        [&](std::int64_t i, std::int64_t j) {
          const std::int64_t column = parts[p].begin + j;
          const auto row = static_cast<std::size_t>(i);
          const std::int64_t target = targets[row];
          if (target < 0 || column >= parts[p].end) return 0.0;
          return std::exp(kept.at(i, column) - top[row]) / total[row] - (column == target ? 1 : 0);
        },
        ulps);
  }
}

TEST(CudaCrossEntropy, PartsOfTheVocabulary) {
  for_each_kind([](const CudaBackend& gpu, DataType type, std::int64_t gap) {
    Random random(12);
    for (const std::int64_t vocabulary : {1, 15, 64, 1003}) {
      for (const std::int64_t t : {0, 1, 7}) {
        Data<double> logits(t, vocabulary);
        logits.fill(random, 3);
        std::vector<std::int32_t> targets;
        for (std::int64_t i = 0; i < t; ++i) {
          const auto draw = random.below(static_cast<std::uint64_t>(vocabulary) + 1);
          targets.push_back(static_cast<std::int32_t>(draw) - 1);
        }
        check(gpu, type, gap, logits, (vocabulary + 1) / 2, targets, 64);
        check(gpu, type, gap, logits, vocabulary, targets, 64);  // one holds padding only
      }
    }
  });
}

TEST(CudaCrossEntropy, HugeLogitsNeitherOverflowNorVanish) {
  for_each_kind([](const CudaBackend& gpu, DataType type, std::int64_t gap) {
    Data<double> logits(3, 40);
    logits.fill([](std::int64_t i, std::int64_t j) {
      return i == 0 ? 1e30 : i == 1 ? -1e30 : 5000.0 - static_cast<double>(j);
    });
    check(gpu, type, gap, logits, 17, {3, 20, 39}, 64);
  });
}

TEST(CudaCrossEntropy, LogitsOfMinusInfinityHaveNoProbability) {
  for_each_kind([](const CudaBackend& gpu, DataType type, std::int64_t gap) {
    Random random(5);
    Data<double> logits(2, 50);
    logits.fill(random);
    for (std::int64_t j = 0; j < 25; ++j) logits(0, j) = -kInfinity;
    check(gpu, type, gap, logits, 25, {30, 7}, 64);
  });
}

TEST(CudaCrossEntropy, NotANumberIsNotHidden) {
  const CudaBackend gpu;
  DeviceMatrix logits(gpu, DataType::bf16, 1, 33);
  Data<double> values(1, 33);
  values.fill(0.5);
  values(0, 20) = std::numeric_limits<double>::quiet_NaN();
  logits.set(values);
  DeviceMatrix most(gpu, DataType::f32, 1, 1);
  DeviceMatrix sums(gpu, DataType::f32, 1, 2);
  gpu->cross_entropy_max(logits, 33, most, *gpu.stream);
  const std::vector<std::int32_t> targets = {0};
  gpu->cross_entropy_sums(logits, 33, 0, targets, most, sums, *gpu.stream);
  EXPECT_TRUE(std::isnan(sums.get().at(0, 0)));
}

}  // namespace
}  // namespace hydraulis
