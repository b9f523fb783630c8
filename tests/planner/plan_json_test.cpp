#include "planner/plan_json.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace hydraulis {
namespace {

Plan example() {
  Plan plan;
  plan.set.strategies =
      parse_strategies("4x(1,16,1); (1,16,1)+6x(1,8,1); 2x(1,8,2,layers=31+29)", "example");
  plan.set.strategies.push_back({Scheme{2, 4, 1, Recompute::full, {}}});
  plan.set.optimizer = {4, 16, 1};
  plan.schemes = {{Scheme{1, 16, 1, Recompute::none, {}}, {1.37779723e-09, 1e-4, 0.1457}, 43520},
                  {Scheme{1, 2, 2, Recompute::selective, {}}, {0, 0.1, 1.0 / 3}, 0}};
  plan.model = "llama-32b";
  plan.cluster = "a800-64";
  plan.profile = "a800-llama-32b";
  plan.memory_model = "published";
  plan.context = 32768;
  plan.tokens_per_batch = 200000;
  plan.proposal_seconds = 0.25;
  return plan;
}

std::string refusal(const Json& json) {
  try {
    plan_from_json(json, "plan.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(PlanJson, OptimizerStatesAreNamedWhereTheyAreOnTheHost) {
  Plan plan = example();
  EXPECT_FALSE(to_json(plan, true).contains("optimizer_states"));
  plan.optimizer_states = OptimizerStates::host;
  Json json = to_json(plan, true);
  EXPECT_EQ(plan_from_json(json, "plan.json").optimizer_states, OptimizerStates::host);
  json["optimizer_states"] = "disk";
  EXPECT_NE(refusal(json).find("'optimizer_states': \"disk\", expected device or host"),
            std::string::npos);
}

TEST(PlanJson, ReadsWhatItWrites) {
  const Plan plan = example();
  const Plan read = plan_from_json(Json::parse(to_text(to_json(plan, false))), "plan.json");
  EXPECT_EQ(read.set.strategies, plan.set.strategies);
  EXPECT_EQ(read.set.optimizer.dp, 4);
  EXPECT_EQ(read.set.optimizer.tp, 16);
  ASSERT_EQ(read.schemes.size(), 2u);
  for (std::size_t k = 0; k < 2; ++k) {
    EXPECT_EQ(read.schemes[k].scheme, plan.schemes[k].scheme);
    EXPECT_EQ(read.schemes[k].max_tokens, plan.schemes[k].max_tokens);
    EXPECT_EQ(read.schemes[k].cost.a, plan.schemes[k].cost.a);
    EXPECT_EQ(read.schemes[k].cost.b, plan.schemes[k].cost.b);
    EXPECT_EQ(read.schemes[k].cost.c, plan.schemes[k].cost.c);
  }
  EXPECT_EQ(read.model, "llama-32b");
  EXPECT_EQ(read.cluster, "a800-64");
  EXPECT_EQ(read.profile, "a800-llama-32b");
  EXPECT_EQ(read.memory_model, "published");
  EXPECT_EQ(read.context, 32768u);
  EXPECT_EQ(read.tokens_per_batch, 200000u);
  EXPECT_EQ(read.proposal_seconds, 0.25);
}

TEST(PlanJson, KeepsTheKeysOfTheCommand) {
  const Json json = to_json(example(), false);
  EXPECT_EQ(json["schemes"][0]["tp"], 16);
  EXPECT_EQ(json["schemes"][0]["max_tokens"], 43520);
  EXPECT_EQ(json["strategies"][1][6], (Json{{"cp", 1}, {"tp", 8}, {"pp", 1}}));
  EXPECT_EQ(json["strategies"][2][0]["layers"], (Json{31, 29}));
  EXPECT_EQ(json["strategies"][3][0]["recompute"], "full");
  EXPECT_EQ(json["optimizer_layout"], (Json{{"dp", 4}, {"tp", 16}, {"pp", 1}}));
  EXPECT_EQ(json["proposal_seconds"], 0.25);
}

TEST(PlanJson, LeavesMeasuredTimesOutWhenReproducible) {
  const Json json = to_json(example(), true);
  EXPECT_FALSE(json.contains("proposal_seconds"));
  EXPECT_EQ(plan_from_json(json, "plan.json").proposal_seconds, 0);
}

TEST(PlanJson, RefusesWithTheFileAndTheField) {
  const Json good = to_json(example(), false);
  ASSERT_EQ(refusal(good), "");
  for (const auto& [key, value] : good.items()) {
    if (key == "proposal_seconds") continue;
    Json without = good;
    without.erase(key);
    const std::string message = refusal(without);
    EXPECT_NE(message.find("plan.json"), std::string::npos) << key;
    EXPECT_NE(message.find(key), std::string::npos) << key;
    Json null = good;
    null[key] = nullptr;
    EXPECT_NE(refusal(null).find(key), std::string::npos) << key;
  }
  const auto broken = [&](const char* pointer, Json value) {
    Json json = good;
    json[Json::json_pointer(pointer)] = std::move(value);
    return refusal(json);
  };
  EXPECT_NE(broken("/surprise", 1).find("surprise"), std::string::npos);
  EXPECT_NE(broken("/context", 0).find("context"), std::string::npos);
  EXPECT_NE(broken("/context", 1.5).find("context"), std::string::npos);
  EXPECT_NE(broken("/context", 1e300).find("context"), std::string::npos);
  EXPECT_NE(broken("/memory_model", "guess").find("expected published"), std::string::npos);
  EXPECT_NE(broken("/strategies", Json::array()).find("strategies"), std::string::npos);
  EXPECT_NE(broken("/strategies/1", Json::array()).find("strategies[1]"), std::string::npos);
  EXPECT_NE(broken("/strategies/1/6/tp", 0).find("strategies[1][6].tp"), std::string::npos);
  EXPECT_NE(broken("/strategies/1/6/tp", 9).find("need 65 devices"), std::string::npos);
  EXPECT_NE(broken("/strategies/1/6/tq", 9).find("tq"), std::string::npos);
  EXPECT_NE(broken("/strategies/2/0/layers", Json{60}).find("layers"), std::string::npos);
  EXPECT_NE(broken("/strategies/2/0/layers", Json{60, 0}).find("layers"), std::string::npos);
  EXPECT_NE(broken("/strategies/2/0/layers", Json{1u << 31, 1}).find("layers"), std::string::npos);
  EXPECT_NE(broken("/strategies/3/0/recompute", "half").find("recompute"), std::string::npos);
  EXPECT_NE(broken("/schemes/0/max_tokens", -1).find("schemes[0].max_tokens"), std::string::npos);
  EXPECT_NE(broken("/schemes/0/seconds_per_token", -1).find("seconds_per_token"),
            std::string::npos);
  EXPECT_NE(broken("/optimizer_layout/dp", 1 << 20).find("optimizer_layout"), std::string::npos);
  EXPECT_NE(refusal(Json::array()), "");
  EXPECT_NE(refusal(Json(3)), "");
}

}  // namespace
}  // namespace hydraulis
