// Plans for optimizer states in host memory.
#include <gtest/gtest.h>

#include "tests/cli/command.h"

namespace hydraulis {
namespace {

std::vector<std::string> plan(const std::vector<std::string>& more) {
  std::vector<std::string> words = hand_plan();
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(HostStatesPlan, LeavesMoreOfTheDevices) {
  const Command command;
  const Json device = command.json(plan({"--memory-model", "composed"}));
  const Json host = command.json(plan({"--optimizer-states", "host"}));
  EXPECT_EQ(host.at("optimizer_states"), "host");
  EXPECT_EQ(host.at("memory_model"), "composed");
  EXPECT_FALSE(device.contains("optimizer_states"));
  ASSERT_EQ(host.at("schemes").size(), device.at("schemes").size());
  for (std::size_t i = 0; i < host.at("schemes").size(); ++i) {
    EXPECT_GE(host.at("schemes")[i].at("max_tokens"), device.at("schemes")[i].at("max_tokens"));
  }
  bool said = false;
  for (const Json& note : host.at("notes")) {
    said |= note.get<std::string>().starts_with("optimizer states: in host memory, ");
  }
  EXPECT_TRUE(said);
  // What the plan says holds wherever it is used.
  const Json simulated = command.json({"simulate", "--plan", "plan.json", "--trace", "web-gpt2",
                                       "--over-context", "truncate", "--iterations", "1"});
  bool step = false;
  for (const Json& note : simulated.at("notes")) {
    step |= note.get<std::string>().find("optimizer step: on the hosts") != std::string::npos;
  }
  EXPECT_TRUE(step) << simulated.at("notes").dump();
}

TEST(HostStatesPlan, RefusesWhatCannotBe) {
  const Command command;
  expect_refused(command.run(plan({"--memory-model", "published", "--optimizer-states", "host"})),
                 2, "--memory-model composed");
  expect_refused(command.run(plan({"--optimizer-states", "disk"})), 2, "--optimizer-states");
}

}  // namespace
}  // namespace hydraulis
