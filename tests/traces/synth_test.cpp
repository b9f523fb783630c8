#include "traces/synth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr std::uint64_t kDocuments = 200000;

/// Sorted lengths with the figures that lengths are judged by.
class Sorted {
 public:
  explicit Sorted(const LengthTrace& trace) : lengths_(trace.lengths) {
    std::sort(lengths_.begin(), lengths_.end());
  }
  double quantile(double q) const {
    return lengths_[static_cast<std::size_t>(q * static_cast<double>(lengths_.size()))];
  }
  double mean() const { return tokens() / static_cast<double>(lengths_.size()); }
  double tokens() const { return std::accumulate(lengths_.begin(), lengths_.end(), 0.0); }
  double share_above(double limit) const {
    const auto above = std::count_if(lengths_.begin(), lengths_.end(),
                                     [&](std::uint32_t length) { return length > limit; });
    return static_cast<double>(above) / static_cast<double>(lengths_.size());
  }
  double token_share_above(double limit) const {
    double sum = 0;
    for (const std::uint32_t length : lengths_) sum += length > limit ? length : 0.0;
    return sum / tokens();
  }

 private:
  std::vector<std::uint32_t> lengths_;
};

void expect_close(double value, double expected, double share, const char* what) {
  EXPECT_NEAR(value, expected, share * expected) << what;
}

TEST(Synth, GithubMeetsThePublishedFigures) {
  const Sorted s(synthesize_preset("github", kDocuments, 1));
  expect_close(s.quantile(0.50), 785, 0.02, "p50");
  expect_close(s.quantile(0.90), 6400, 0.03, "p90");
  expect_close(s.mean(), 3420, 0.04, "mean");
  EXPECT_GE(s.share_above(65536), 0.0052);
  EXPECT_LE(s.share_above(65536), 0.0063);
  EXPECT_GE(s.token_share_above(131072), 0.14);
  EXPECT_LE(s.token_share_above(131072), 0.18);
}

TEST(Synth, CommonCrawlMeetsThePublishedFigures) {
  const Sorted s(synthesize_preset("commoncrawl", kDocuments, 1));
  expect_close(s.quantile(0.50), 290, 0.02, "p50");
  expect_close(s.quantile(0.99), 4400, 0.04, "p99");
  expect_close(s.mean(), 570, 0.04, "mean");
  EXPECT_GE(s.share_above(8192), 0.0030);
  EXPECT_LE(s.share_above(8192), 0.0039);
}

TEST(Synth, WikipediaMeetsTheListWithinItsFit) {
  // The two-piece law fits this list with a Kolmogorov distance of 0.05 only, hence the width.
  const Sorted s(synthesize_preset("wikipedia", kDocuments, 1));
  expect_close(s.quantile(0.50), 347, 0.05, "p50");
  expect_close(s.quantile(0.75), 862, 0.10, "p75");
  expect_close(s.quantile(0.90), 2112, 0.05, "p90");
  expect_close(s.quantile(0.99), 10919, 0.10, "p99");
  expect_close(s.mean(), 1010, 0.04, "mean");
}

TEST(Synth, LongMixMeetsThePublishedHistogram) {
  const Sorted s(synthesize_preset("longmix", kDocuments, 1));
  expect_close(s.quantile(0.50), 551, 0.02, "p50");
  expect_close(s.quantile(0.90), 2717, 0.02, "p90");
  expect_close(s.quantile(0.99), 21033, 0.05, "p99");
  expect_close(s.mean(), 1721, 0.04, "mean");
  EXPECT_NEAR(1 - s.share_above(2048), 0.8702, 0.003);
  EXPECT_NEAR(1 - s.share_above(8192), 0.9742, 0.002);
  EXPECT_NEAR(1 - s.share_above(32768), 0.9954, 0.001);
  EXPECT_NEAR(1 - s.token_share_above(1024), 0.169, 0.01);
  EXPECT_NEAR(1 - s.token_share_above(8192), 0.536, 0.02);
  EXPECT_NEAR(1 - s.token_share_above(32768), 0.738, 0.02);
}

/// FNV-1a over the lengths' bytes, least significant first.
std::uint64_t checksum(const LengthTrace& trace) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const std::uint32_t length : trace.lengths) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ ((length >> shift) & 0xff)) * 0x100000001b3ULL;
    }
  }
  return hash;
}

TEST(Synth, SameLengthsOnEveryMachine) {
  EXPECT_EQ(checksum(synthesize_preset("commoncrawl", 20000, 7)), 15530168550261384487ULL);
  EXPECT_EQ(checksum(synthesize_preset("github", 20000, 7)), 6189604735878172253ULL);
  EXPECT_EQ(checksum(synthesize_preset("longmix", 20000, 7)), 7472002133446981658ULL);
}

TEST(Synth, SeedsDifferAndAPrefixIsAPrefix) {
  const LengthTrace a = synthesize_preset("github", 100, 1);
  const LengthTrace b = synthesize_preset("github", 200, 1);
  EXPECT_TRUE(std::equal(a.lengths.begin(), a.lengths.end(), b.lengths.begin()));
  EXPECT_NE(a.lengths, synthesize_preset("github", 100, 2).lengths);
}

TEST(Synth, LengthsStayInsideTheLaw) {
  const LengthTrace trace = synthesize({5, 3, 900, 0.5, 0.4, 100, 1000}, 20000, 3);
  const auto [low, high] = std::minmax_element(trace.lengths.begin(), trace.lengths.end());
  EXPECT_GE(*low, 100u);
  EXPECT_LE(*high, 1000u);
}

TEST(Synth, BinnedHistogramKeepsShares) {
  BinnedLaw law;
  law.lo = 10;
  law.bins = {{100, 0.25}, {1000, 1.0}};
  const Sorted s(synthesize(law, kDocuments, 5));
  EXPECT_NEAR(1 - s.share_above(99), 0.25, 0.005);
  expect_close(s.quantile(0.625), 316, 0.02, "log-uniform middle of the upper bin");
}

TEST(Synth, BadParametersAreNamed) {
  const auto message = [](const TwoPieceLaw& law) {
    try {
      synthesize(law, 10, 0);
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(message({5, 0, 900, 1, 0.1, 1, 1000}).find("sigma"), std::string::npos);
  EXPECT_NE(message({5, 1, 900, 0, 0.1, 1, 1000}).find("alpha"), std::string::npos);
  EXPECT_NE(message({5, 1, 900, 1, 1.0, 1, 1000}).find("p is 1"), std::string::npos);
  EXPECT_NE(message({5, 1, 900, 1, 0.1, 0, 1000}).find("lo"), std::string::npos);
  EXPECT_NE(message({5, 1, 900, 1, 0.1, 1, 800}).find("hi"), std::string::npos);
  EXPECT_NE(message({5, 1, 1, 1, 0.1, 1, 800}).find("xm"), std::string::npos);
  EXPECT_NE(message({1.0 / 0.0, 1, 9, 1, 0.1, 1, 800}).find("mu"), std::string::npos);
  EXPECT_THROW(synthesize_preset("wikipedia", 0, 0), InputError);
  EXPECT_THROW(synthesize_preset("books", 10, 0), InputError);
  BinnedLaw law;
  law.bins = {{100, 0.5}, {50, 1.0}};
  EXPECT_THROW(synthesize(law, 10, 0), InputError);
  law.bins = {{100, 0.5}};
  EXPECT_THROW(synthesize(law, 10, 0), InputError);
}

}  // namespace
}  // namespace hydraulis
