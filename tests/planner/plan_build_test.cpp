#include "planner/plan_build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "case_study.h"
#include "costmodel/node_groups.h"
#include "planner/assignment.h"
#include "planner/policy.h"
#include "planner/program/lower.h"
#include "planner/program/verify.h"
#include "planner/verify_plan.h"

namespace hydraulis {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

PlanRequest case_study_request() {
  PlanRequest request;
  request.model = "llama-32b";
  request.cluster = "a800-64";
  request.context = 32'768;
  request.tokens_per_batch = 200'000;
  return request;
}

template <typename Matcher>
void expect_refused(const PlanRequest& request, ExitCode code, const Matcher& message,
                    const LengthTrace* trace = nullptr) {
  try {
    make_plan(request, trace);
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), message);
  }
}

TEST(PlanBuild, StrategiesByHand) {
  PlanRequest request = case_study_request();
  request.strategies = test::kCaseStudyStrategies;
  const PlanResult result = make_plan(request, nullptr);
  EXPECT_EQ(result.plan.set.strategies, test::case_study_set().strategies);
  EXPECT_EQ(result.plan.set.optimizer.dp, 4);
  EXPECT_EQ(result.plan.set.optimizer.tp, 16);
  EXPECT_EQ(result.plan.set.optimizer.pp, 1);
  EXPECT_EQ(result.plan.memory_model, "published");
  EXPECT_FALSE(result.plan.schemes.empty());
  const CostModel again = cost_model_of(result.plan, "plan.json");
  for (const SchemeOption& option : result.plan.schemes) {
    EXPECT_EQ(max_tokens(again, option.scheme), option.max_tokens) << to_string(option.scheme);
  }
  EXPECT_FALSE(provenance(result.model).empty());
}

TEST(PlanBuild, OptimizerLayoutByHand) {
  PlanRequest request = case_study_request();
  request.strategies = "(1,16,1)+6x(1,8,1)";
  request.optimizer_layout = "4,16,1";
  EXPECT_EQ(make_plan(request, nullptr).plan.set.optimizer.tp, 16);
  for (const char* bad : {"4,16", "4,16,1,1", "0,16,1", "a,b,c", "4;16;1", ""}) {
    request.optimizer_layout = bad;
    if (*bad == '\0') {
      EXPECT_NO_THROW(make_plan(request, nullptr));  // found by itself
    } else {
      expect_refused(request, ExitCode::bad_input, HasSubstr("--optimizer-layout"));
    }
  }
  request.optimizer_layout = "2,16,1";  // 32 of 64 devices
  expect_refused(request, ExitCode::bad_input, HasSubstr("64"));
}

/// Whatever the sample batches prefer, the set must hold a sequence as long as the context.
void expect_context_held(const PlanRequest& request, const std::string& trace_name) {
  const LengthTrace trace = load_trace(trace_name);
  const PlanResult result = make_plan(request, &trace);
  std::int64_t longest = 0;
  for (const Strategy& strategy : result.plan.set.strategies) {
    for (const Scheme& scheme : strategy) {
      longest = std::max(longest, max_tokens(result.model, scheme));
    }
  }
  EXPECT_GE(longest, static_cast<std::int64_t>(request.context));
}

TEST(PlanBuild, AProposedSetHoldsTheContextWhereTheOptimizerLayoutDoesNot) {
  PlanRequest request = case_study_request();
  request.optimizer_layout = "16,4,1";  // holds 7,808 tokens
  expect_context_held(request, "web-gpt2");
  request = case_study_request();
  request.model = "llama-7b";
  request.cluster = "h100-8";
  request.context = 131'072;  // needs context parallelism, which an optimizer layout cannot express
  request.tokens_per_batch = 400'000;
  expect_context_held(request, "github-gpt2");
}

TEST(PlanBuild, ExcludedDegreesAreSaidWithTheirReason) {
  PlanRequest request = case_study_request();
  request.model = "llama-3.2-1b";  // 32 heads, 8 of keys and values
  request.cluster = "h100-8";
  request.context = 8192;
  const LengthTrace trace = load_trace("web-gpt2");
  const PlanResult result = make_plan(request, &trace);
  EXPECT_FALSE(result.unused_schemes.empty());
  EXPECT_THAT(result.unused_schemes, ::testing::Contains(HasSubstr("tp=16")));
}

TEST(PlanBuild, WrongNumbersOfDevices) {
  PlanRequest request = case_study_request();
  request.strategies = "5x(1,16,1)";
  expect_refused(request, ExitCode::infeasible, AllOf(HasSubstr("80"), HasSubstr("16 fewer")));
  request.strategies = "3x(1,16,1)";
  expect_refused(request, ExitCode::bad_input, AllOf(HasSubstr("48"), HasSubstr("64")));
}

TEST(PlanBuild, SchemesThatCannotBeUsed) {
  PlanRequest request = case_study_request();
  request.strategies = "4x(1,16,1); 2x(1,32,1)";
  expect_refused(request, ExitCode::bad_input, HasSubstr("(1,32,1)"));
  request.strategies = "4x(1,16,1); 32x(1,1,2)";  // does not fit in memory at all
  expect_refused(request, ExitCode::infeasible, HasSubstr("(1,1,2)"));
}

TEST(PlanBuild, NothingToProposeFrom) {
  expect_refused(case_study_request(), ExitCode::bad_input, HasSubstr("--trace"));
}

TEST(PlanBuild, ContextThatFitsNothingNamesTheNearest) {
  const LengthTrace trace = load_trace("web-gpt2");
  PlanRequest request = case_study_request();
  request.context = 65'536;
  expect_refused(request, ExitCode::infeasible, AllOf(HasSubstr("65536"), HasSubstr("43520")),
                 &trace);
}

TEST(PlanBuild, DerivedSchemesHoldLongerContexts) {
  const LengthTrace trace = load_trace("github-gpt2");
  PlanRequest request = case_study_request();
  request.context = 131'072;
  request.tokens_per_batch = 0;  // not tried on batches, which takes most of the time
  expect_refused(request, ExitCode::infeasible, HasSubstr("--schemes cp fits here"), &trace);
  request.schemes = parse_scheme_space("cp", "test");
  const PlanResult rings = make_plan(request, &trace);
  EXPECT_EQ(rings.plan.memory_model, "published");
  request.schemes = parse_scheme_space("cp,recompute,layers", "test");
  request.strategies = "(4,16,1); (4,8,2,recompute=selective)";
  const PlanResult all = make_plan(request, &trace);
  EXPECT_EQ(all.plan.memory_model, "composed");  // the published one knows no recomputation
  for (const PlanResult* result : {&rings, &all}) {
    std::int64_t longest = 0;
    for (const Strategy& strategy : result->plan.set.strategies) {
      for (const Scheme& scheme : strategy) {
        longest = std::max(longest, max_tokens(result->model, scheme));
      }
    }
    EXPECT_GE(longest, 131'072);
    // The file of the plan gives the same schemes again.
    const Plan read = plan_from_json(to_json(result->plan, true), "plan.json");
    EXPECT_EQ(read.scheme_space, result->plan.scheme_space);
    const CostModel again = cost_model_of(read, "plan.json");
    for (const SchemeOption& option : result->plan.schemes) {
      EXPECT_EQ(max_tokens(again, option.scheme), option.max_tokens) << to_string(option.scheme);
    }
  }
  request.memory_model = MemoryModel::published;
  expect_refused(request, ExitCode::bad_input, HasSubstr("--memory-model composed"), &trace);
}

ClusterSpec half_faster(double speed) {
  ClusterSpec cluster = load_cluster("a800-64");
  if (speed != 1) cluster.groups = {{4, cluster.device, 1}, {4, cluster.device, speed}};
  return cluster;
}

// Planned and assigned; seconds of a few batches, every program checked.
double seconds_on(const ClusterSpec& cluster, const LengthTrace& trace) {
  const PlanResult result = make_plan(case_study_request(), load_model("llama-32b"), cluster,
                                      load_profile("a800-llama-32b"), &trace);
  for (const Strategy& strategy : result.plan.set.strategies) {
    for (int group = 0; group < group_count(cluster); ++group) {
      int used = 0;
      for (const Scheme& scheme : strategy) used += scheme.group == group ? scheme.devices() : 0;
      EXPECT_LE(used, group_devices(cluster, group)) << to_string(strategy);
    }
  }
  const PreparedStrategies prepared = prepare(result.plan.set, result.model);
  double seconds = 0;
  for (const Batch& batch : test::case_study_batches("web-gpt2", 3)) {
    const BatchPlan plan = assign(sequences_of(batch), prepared);
    EXPECT_THAT(verify(plan, batch, result.model), ::testing::IsEmpty());
    const Program program = lower(plan, result.model);
    EXPECT_THAT(verify(program, result.model), ::testing::IsEmpty());
    for (const Stage& stage : program.stages) {
      const int group = program.pipelines[static_cast<std::size_t>(stage.pipeline)].scheme.group;
      for (const int device : stage.devices) {
        if (!cluster.groups.empty()) {
          EXPECT_EQ(device / 32, group);
        }
      }
    }
    seconds += plan.makespan_seconds;
  }
  return seconds;
}

// Half of the nodes are twice as fast: 1.5 times the speed of all slow ones in sum, of which little
// is lost.
TEST(PlanBuild, UnlikeNodesAreUsedForWhatTheyCanDo) {
  const LengthTrace trace = load_trace("web-gpt2");
  const double alike = seconds_on(half_faster(1), trace);
  const double unlike = seconds_on(half_faster(2), trace);
  EXPECT_LT(unlike, alike / 1.3);
  EXPECT_GT(unlike, alike / 1.55);
  PlanRequest request = case_study_request();
  request.strategies = "4x(1,16,1)";
  try {
    make_plan(request, load_model("llama-32b"), half_faster(2), load_profile("a800-llama-32b"),
              nullptr);
    ADD_FAILURE() << "expected an error";
  } catch (const InfeasibleError& error) {
    EXPECT_THAT(error.what(), HasSubstr("needs 64 of node group 0"));
  }
}

TEST(PlanBuild, ProposesForATrace) {
  const LengthTrace trace = load_trace("web-gpt2");
  const PlanResult result = make_plan(case_study_request(), &trace);
  ASSERT_FALSE(result.plan.set.strategies.empty());
  std::int64_t longest = 0;
  for (const Strategy& strategy : result.plan.set.strategies) {
    EXPECT_LE(devices(strategy), 64);
    for (const Scheme& scheme : strategy) {
      longest = std::max(longest, max_tokens(result.model, scheme));
    }
  }
  EXPECT_GE(longest, 32'768);
  EXPECT_TRUE(is_homogeneous(result.plan.set.strategies.front()));
}

// Where traffic hides behind computation, sets that move more of it are worth having.
TEST(PlanBuild, SetsAreChosenByTheTrafficThatIsNotHidden) {
  const LengthTrace trace = load_trace("commoncrawl");
  PlanRequest request = case_study_request();
  request.model = "llama-13b";
  request.cluster = "a800-16";
  request.tokens_per_batch = 60'000;
  const auto seconds = [&] {
    const PlanResult result = make_plan(request, &trace);
    AssignmentOptions options;
    options.count_parameter_traffic = true;
    options.traffic_overlaps = true;
    const PreparedStrategies prepared = prepare(result.plan.set, result.model, options);
    SamplerOptions sampling;
    sampling.tokens_per_batch = request.tokens_per_batch;
    sampling.context = request.context;
    sampling.over_context = OverContext::truncate;
    sampling.seed = 7;
    Sampler sampler(trace, sampling);
    double sum = 0;
    for (int i = 0; i < 15; ++i) {
      const BatchPlan plan = assign(sequences_of(sampler.next()), prepared);
      sum +=
          plan.makespan_seconds + prepared.traffic_seconds[static_cast<std::size_t>(plan.strategy)];
    }
    return sum;
  };
  const double all_counted = seconds();
  request.traffic_overlaps = true;
  EXPECT_LT(seconds(), 0.99 * all_counted);
}

TEST(PlanBuild, NothingIsProposedForMoreDevicesThanThinningCanBear) {
  const LengthTrace trace = load_trace("web-gpt2");
  ClusterSpec cluster = load_cluster("a800-64");
  cluster.nodes = 1'000;
  try {
    make_plan(case_study_request(), load_model("llama-32b"), cluster, {}, &trace);
    ADD_FAILURE() << "expected an error";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("8000 devices"), HasSubstr("--strategies")));
  }
}

TEST(PlanBuild, UnknownNamesAreRefused) {
  PlanRequest request = case_study_request();
  request.model = "llama-33b";
  expect_refused(request, ExitCode::bad_input, HasSubstr("llama-33b"));
  request = case_study_request();
  request.cluster = "a900-64";
  expect_refused(request, ExitCode::bad_input, HasSubstr("a900-64"));
}

}  // namespace
}  // namespace hydraulis
