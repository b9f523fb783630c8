#include "costmodel/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/costmodel/expect_error.h"
#include "tests/costmodel/synthetic_machine.h"

namespace hydraulis {
namespace {

using testing::exactly;
using testing::measure;
using testing::SyntheticMachine;
using testing::tiny_model;

KernelShape attention_shape(int heads = 8) {
  KernelShape shape;
  shape.kernel = Kernel::attention;
  shape.heads = heads;
  shape.kv_heads = heads;
  shape.head_dim = 64;
  return shape;
}

/// Products and attention of known coefficients up to `most` tokens.
OperatorProfile up_to(std::int64_t most) {
  OperatorProfile profile;
  profile.machine.device = "cpu";
  profile.machine.ranks = 1;
  for (std::int64_t tokens = 64; tokens <= most; tokens *= 2) {
    KernelSample product;
    product.shape.inputs = 512;
    product.shape.outputs = 1536;
    product.tokens = tokens;
    product.time = exactly(1e-6 * static_cast<double>(tokens));
    profile.kernels.push_back(product);
    for (std::int64_t length = 64; length <= tokens; length *= 2) {
      KernelSample attention;
      attention.shape = attention_shape();
      attention.tokens = tokens;
      attention.length = length;
      attention.time = exactly(2e-9 * static_cast<double>(tokens * length));
      profile.kernels.push_back(attention);
    }
  }
  return profile;
}

// Case B11: fitted to 4,096 tokens, asked for 32,768.
TEST(Fit, GrowsBeyondWhatWasMeasuredAndSaysSo) {
  const OperatorFits fits = fit_operators(up_to(4096), "test");
  const KernelShape product = fits.kernels[0].shape;
  FitUse inside;
  const double linear = kernel_seconds(fits, product, 4096, 0, inside);
  const double squared = kernel_seconds(fits, attention_shape(), 4096, 4096.0 * 4096, inside);
  EXPECT_TRUE(inside.beyond.empty());
  FitUse beyond;
  EXPECT_NEAR(kernel_seconds(fits, product, 32768, 0, beyond) / linear, 8, 1e-6);
  EXPECT_NEAR(kernel_seconds(fits, attention_shape(), 32768, 32768.0 * 32768, beyond) / squared, 64,
              1e-4);
  const std::vector<std::string> said = beyond.beyond_sentences();
  ASSERT_EQ(said.size(), 3u);  // the product's tokens, attention's tokens and length
  for (const std::string& line : said) {
    EXPECT_THAT(line, ::testing::HasSubstr("8 times the largest size measured"));
  }
}

// Case B10: hundreds of sizes of a real machine's all-reduce, with many steps down.
TEST(Fit, AllReduceWithStepsDownIsMonotone) {
  std::mt19937_64 random(10);
  std::exponential_distribution<double> delay(1 / 0.12);
  OperatorProfile profile = up_to(64);
  double last = 0;
  int down = 0;
  for (int i = 0; i < 993; ++i) {
    // 2 KiB to 64 MiB: 37 µs at first, 365 GB/s bus bandwidth of 8 ranks at the end.
    const double bytes = std::exp(std::log(2048) + i * std::log(32768) / 992);
    const double seconds = (3.7e-5 + bytes / 210e9) * (1 + delay(random) - 0.12);
    down += seconds < last ? 1 : 0;
    last = seconds;
    profile.collectives.push_back(
        {Collective::all_reduce, 8, 1, static_cast<std::int64_t>(bytes), exactly(seconds), true});
  }
  EXPECT_GT(down, 160);
  const OperatorFits fits = fit_operators(profile, "test");
  ASSERT_EQ(fits.collectives.size(), 1u);
  const CollectiveFit& fit = fits.collectives[0];
  EXPECT_GE(fit.latency_seconds(), 0);
  EXPECT_GT(fit.bytes_per_second(), 0);
  EXPECT_EQ(fit.quality.points, 993);
  EXPECT_GT(fit.quality.mean_error, 0);
  EXPECT_LT(fit.quality.mean_error, 0.12);
  EXPECT_GE(fit.quality.max_error, fit.quality.mean_error);
  double before = 0;
  for (double bytes = 1; bytes < 1e10; bytes *= 1.02) {
    FitUse use;
    const double seconds =
        collective_seconds(fits, Collective::all_reduce, 8, 1, bytes, use).value();
    EXPECT_TRUE(std::isfinite(seconds));
    EXPECT_GT(seconds, before);
    before = seconds;
  }
  FitUse use;
  const double bytes = 64 << 20;
  const double seconds = collective_seconds(fits, Collective::all_reduce, 8, 1, bytes, use).value();
  EXPECT_NEAR(2 * 7 / 8.0 * bytes / seconds / 1e9, 330, 35);  // with the latency's share
}

TEST(Fit, AttentionRecoversItsCoefficients) {
  std::mt19937_64 random(4);
  std::uniform_real_distribution<double> exponent(-1, 1);
  for (int trial = 0; trial < 20; ++trial) {
    const double a = 1e-10 * std::pow(10, exponent(random));
    const double b = 1e-8 * std::pow(10, exponent(random));
    const double c = 1e-6 * std::pow(10, exponent(random));
    OperatorProfile profile;
    profile.machine.device = "cpu";
    profile.machine.ranks = 1;
    for (std::int64_t tokens = 32; tokens <= 8192; tokens *= 2) {
      for (std::int64_t length = 32; length <= tokens; length *= 4) {
        KernelSample sample;
        sample.shape = attention_shape();
        sample.tokens = tokens;
        sample.length = length;
        const auto t = static_cast<double>(tokens);
        sample.time = exactly(a * t * static_cast<double>(length) + b * t + c);
        profile.kernels.push_back(sample);
      }
    }
    const KernelFit fit = fit_operators(profile, "test").kernels.at(0);
    EXPECT_NEAR(fit.a / a, 1, 1e-6);
    EXPECT_NEAR(fit.b / b, 1, 1e-6);
    EXPECT_NEAR(fit.c / c, 1, 1e-6);
    EXPECT_FALSE(fit.by_length);
    EXPECT_LT(fit.quality.max_error, 1e-6);
  }
}

/// Short sequences at a quarter of the rate: a straight line per token is not enough.
TEST(Fit, AttentionFallsBackToATableByLength) {
  OperatorProfile profile;
  profile.machine.device = "cpu";
  profile.machine.ranks = 1;
  const auto law = [](double tokens, double length) {
    return tokens * (1e-10 * std::max(length, 512.0) + 4e-10 * std::min(length, 128.0));
  };
  for (std::int64_t tokens = 64; tokens <= 8192; tokens *= 2) {
    for (std::int64_t length = 16; length <= tokens; length *= 2) {
      KernelSample sample;
      sample.shape = attention_shape();
      sample.tokens = tokens;
      sample.length = length;
      sample.time = exactly(law(static_cast<double>(tokens), static_cast<double>(length)));
      profile.kernels.push_back(sample);
    }
  }
  const KernelFit fit = fit_operators(profile, "test").kernels.at(0);
  EXPECT_TRUE(fit.by_length);
  EXPECT_LT(fit.quality.mean_error, 0.03);
  EXPECT_NEAR(fit.seconds(65536, 65536.0 * 65536) / law(65536, 65536), 1, 0.1);
}

TEST(Fit, ProductsSaturateAtSmallCounts) {
  const SyntheticMachine machine;
  const OperatorProfile profile = measure(machine, tiny_model());
  for (const KernelFit& fit : fit_operators(profile, "test").kernels) {
    EXPECT_LT(fit.quality.max_error, 0.02) << to_string(fit.shape);
    EXPECT_FALSE(fit.quality.bad());
  }
}

TEST(Fit, BorrowsShapesAndGroupsInProportionToTheirWork) {
  const SyntheticMachine machine;
  const OperatorFits fits = fit_operators(measure(machine, tiny_model()), "test");
  KernelShape shape;
  shape.inputs = 384;
  shape.outputs = 900;
  FitUse use;
  EXPECT_NEAR(kernel_seconds(fits, shape, 2048, 0, use) / machine.seconds(shape, 2048, 0), 1, 0.02);
  ASSERT_EQ(use.borrowed.size(), 1u);
  EXPECT_THAT(use.borrowed_sentences().at(0), ::testing::HasSubstr("gemm_forward 384→900"));
  FitUse group;
  EXPECT_NEAR(collective_seconds(fits, Collective::all_gather, 8, 1, 1 << 20, group).value() /
                  machine.seconds(Collective::all_gather, 8, 1 << 20),
              1, 1e-3);
  EXPECT_EQ(group.borrowed.size(), 1u);
  FitUse never;
  shape = {};
  shape.kernel = Kernel::zero;
  shape.width = 8;
  OperatorFits none = fits;
  std::erase_if(none.kernels,
                [](const KernelFit& fit) { return fit.shape.kernel == Kernel::zero; });
  EXPECT_EQ(kernel_seconds(none, shape, 8, 0, never), 0);
  EXPECT_EQ(never.missing.count("zero"), 1u);
  std::erase_if(none.kernels, [](const KernelFit& fit) { return is_attention(fit.shape.kernel); });
  expect_error<InputError>([&] { kernel_seconds(none, attention_shape(), 8, 64, never); },
                           {"attention"});
}

TEST(Fit, ScalesTouchLatencyAndBytesApart) {
  const SyntheticMachine machine;
  const OperatorFits fits = fit_operators(measure(machine, tiny_model()), "test");
  FitUse use;
  const auto send = [&](double latency, double bandwidth) {
    return collective_seconds(fits, Collective::send, 2, 1, 1e6, use, latency, bandwidth).value();
  };
  EXPECT_NEAR(send(1, 1), 5e-6 + 1e6 / 4e9, 1e-9);
  EXPECT_NEAR(send(3, 1) - send(1, 1), 1e-5, 1e-9);
  EXPECT_NEAR(send(1, 0.5) - send(1, 1), 1e6 / 4e9, 1e-9);
}

/// A busy machine: a third of the points are far too long, and their quantiles show it.
TEST(Fit, PointsThatSpreadWeighLittle) {
  const OperatorFits quiet = fit_operators(up_to(4096), "test");
  OperatorProfile profile = up_to(4096);
  int i = 0;
  for (KernelSample& sample : profile.kernels) {
    const double seconds = sample.time.median_seconds;
    if (++i % 3 == 0) sample.time = {4 * seconds, seconds, 9 * seconds, 9, false};
  }
  const OperatorFits busy = fit_operators(profile, "test");
  for (std::size_t k = 0; k < quiet.kernels.size(); ++k) {
    for (const double tokens : {256., 1024., 4096.}) {
      EXPECT_NEAR(busy.kernels[k].seconds(tokens, tokens * 256) /
                      quiet.kernels[k].seconds(tokens, tokens * 256),
                  1, 0.1);
    }
    EXPECT_TRUE(busy.kernels[k].quality.bad()) << "the residuals still count every point";
  }
}

TEST(Fit, NoisyMeasurementsAreReportedAsBad) {
  OperatorProfile profile = up_to(4096);
  int i = 0;
  for (KernelSample& sample : profile.kernels) {
    if (++i % 2 == 0) sample.time = exactly(sample.time.median_seconds * 3);
  }
  const std::vector<std::string> bad = bad_fits(fit_operators(profile, "test"));
  ASSERT_FALSE(bad.empty());
  EXPECT_THAT(bad.back(), ::testing::HasSubstr("badly fitted"));
}

}  // namespace
}  // namespace hydraulis
