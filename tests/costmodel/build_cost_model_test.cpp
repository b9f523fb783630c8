#include "costmodel/build_cost_model.h"

#include <gtest/gtest.h>

#include "tests/costmodel/expect_error.h"

namespace hydraulis {
namespace {

OptimizerLayout layout(const std::string& model, const std::string& cluster, std::int64_t context) {
  const ModelSpec spec = load_model(model);
  const ClusterSpec devices = load_cluster(cluster);
  const Profile profile = default_profile(spec, devices);
  return default_optimizer_layout(spec, devices, profile, default_memory_model(profile), context);
}

void expect_layout(const OptimizerLayout& found, int dp, int tp, int pp) {
  EXPECT_EQ(found.dp, dp);
  EXPECT_EQ(found.tp, tp);
  EXPECT_EQ(found.pp, pp);
}

TEST(BuildCostModel, DefaultProfile) {
  EXPECT_EQ(default_profile(load_model("llama-32b"), load_cluster("a800-64")).name,
            "a800-llama-32b");
  EXPECT_TRUE(default_profile(load_model("llama-32b"), load_cluster("h100-64")).analytic);
  EXPECT_TRUE(default_profile(load_model("llama-70b"), load_cluster("a800-64")).analytic);
  EXPECT_EQ(default_memory_model(load_profile("a800-llama-7b")), MemoryModel::published);
  EXPECT_EQ(default_memory_model(default_profile(load_model("qwen2-7b"), load_cluster("h20-8"))),
            MemoryModel::composed);
}

TEST(BuildCostModel, DefaultLayouts) {
  expect_layout(layout("llama-32b", "a800-64", 32768), 4, 16, 1);
  expect_layout(layout("llama-32b", "a800-1024", 32768), 64, 16, 1);
  expect_layout(layout("llama-13b", "a800-32", 32768), 4, 8, 1);
  expect_layout(layout("llama-7b", "a800-32", 32768), 8, 4, 1);
}

// The layout that is returned holds the context when it is itself the optimizer layout.
TEST(BuildCostModel, LayoutHoldsTheContext) {
  const ModelSpec model = load_model("llama-3.1-70b");
  const ClusterSpec cluster = load_cluster("h100-64");
  const Profile profile = default_profile(model, cluster);
  const Scheme scheme =
      default_homogeneous_scheme(model, cluster, profile, MemoryModel::composed, 32768);
  const OptimizerLayout found =
      default_optimizer_layout(model, cluster, profile, MemoryModel::composed, 32768);
  EXPECT_EQ(found.tp, scheme.tp);
  EXPECT_EQ(found.devices(), 64);
  const CostModel built = make_cost_model(model, cluster, profile, MemoryModel::composed, found);
  EXPECT_GE(max_tokens(built, scheme), 32768);
}

TEST(BuildCostModel, InfeasibleSaysWhatWouldFit) {
  expect_error<InfeasibleError>([] { layout("llama-32b", "a800-64", 65536); },
                                {"llama-32b", "a800-64", "65536", "GiB", "context of 43520",
                                 "(1,16,1)", "no number of devices"});
  expect_error<InfeasibleError>([] { layout("llama-32b", "a800-8", 32768); },
                                {"missed by", "context of 768", "32 devices hold 32768"});
  expect_error<InfeasibleError>([] { layout("llama-3.1-70b", "a800-8", 4096); },
                                {"not even 128 tokens", "devices hold 4096"});
}

TEST(BuildCostModel, ChecksTheLayout) {
  const ModelSpec model = load_model("llama-32b");
  const ClusterSpec cluster = load_cluster("a800-64");
  const Profile profile = load_profile("a800-llama-32b");
  const auto build = [&](OptimizerLayout optimizer) {
    return make_cost_model(model, cluster, profile, MemoryModel::published, optimizer);
  };
  EXPECT_NO_THROW(build({4, 16, 1}));
  expect_error<InputError>([&] { build({8, 16, 1}); }, {"8,16,1", "128", "64"});
  expect_error<InputError>([&] { build({-4, -16, 1}); }, {"-4,-16,1"});
  expect_error<InputError>([&] { build({1, 1, 64}); }, {"60 layers"});
}

TEST(BuildCostModel, ChecksTheProfile) {
  const ClusterSpec cluster = load_cluster("a800-64");
  const Profile profile = load_profile("a800-llama-32b");
  expect_error<InputError>(
      [&] {
        make_cost_model(load_model("llama-7b"), cluster, profile, MemoryModel::published,
                        {4, 16, 1});
      },
      {"a800-llama-32b", "llama-7b", "60", "32", "analytic"});
  ModelSpec wide = load_model("llama-32b");
  wide.vocab = 50304;
  const CostModel built =
      make_cost_model(wide, cluster, profile, MemoryModel::published, {4, 16, 1});
  EXPECT_EQ(built.profile.limits.size(), profile.limits.size() + 1);
  const CostModel elsewhere = make_cost_model(load_model("llama-32b"), load_cluster("h100-64"),
                                              profile, MemoryModel::published, {4, 16, 1});
  EXPECT_NE(elsewhere.profile.limits.back().find("h100"), std::string::npos);
  expect_error<InputError>(
      [&] {
        make_cost_model(wide, cluster, analytic_profile(wide, cluster), MemoryModel::published,
                        {4, 16, 1});
      },
      {"composed"});
}

}  // namespace
}  // namespace hydraulis
