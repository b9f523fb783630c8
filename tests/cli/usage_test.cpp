// The command as such: help, version, mistyped command lines, standard output that fails.
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "tests/cli/command.h"

namespace hydraulis {
namespace {

using Arguments = std::vector<std::string>;

const std::vector<Arguments>& subcommands() {
  static const std::vector<Arguments> all = {{"trace", "import"},
                                             {"trace", "synth"},
                                             {"trace", "show"},
                                             {"plan"},
                                             {"assign"},
                                             {"simulate"},
                                             {"compare"},
                                             {"cluster", "import"},
                                             {"cluster", "collectives"}};
  return all;
}

TEST(Usage, HelpNamesEverySubcommand) {
  const Outcome help = Command().run({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_EQ(help.err, "");
  for (const char* name : {"trace", "plan", "assign", "simulate", "compare"}) {
    EXPECT_NE(help.out.find(name), std::string::npos) << name;
  }
}

TEST(Usage, EverySubcommandHasHelpWithAnExample) {
  const Command command;
  for (Arguments arguments : subcommands()) {
    std::string name = "hydraulis";
    for (const auto& word : arguments) name += " " + word;
    arguments.emplace_back("--help");
    const Outcome help = command.run(arguments);
    EXPECT_EQ(help.code, 0) << name;
    EXPECT_NE(help.out.find("Example"), std::string::npos) << name;
    EXPECT_NE(help.out.find("  " + name + " "), std::string::npos) << name << help.out;
    for (const char* option : {"--json", "--csv", "--reproducible"}) {
      EXPECT_NE(help.out.find(option), std::string::npos) << name << ": " << option;
    }
  }
}

// With a plan its context holds, so no help may show another default.
TEST(Usage, HelpSaysWhoseContextIsTheDefault) {
  const Command command;
  const auto has = [&](const char* name, const std::string& text) {
    return command.run({name, "--help"}).out.find(text) != std::string::npos;
  };
  EXPECT_TRUE(has("assign", "in tokens [the plan's]"));
  EXPECT_FALSE(has("assign", "32768"));
  EXPECT_TRUE(has("simulate", "in tokens [the plan's, or 32768]"));
  EXPECT_TRUE(has("compare", "in tokens [the plan's, or 32768]"));
  EXPECT_TRUE(has("plan", "in tokens [32768]"));
}

TEST(Usage, VersionIsOneLine) {
  const Outcome version = Command().run({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(std::regex_match(version.out, std::regex("[0-9]+\\.[0-9]+\\.[0-9]+\n")))
      << version.out;
}

TEST(Usage, MistypedNamesGetTheNearest) {
  const Command command;
  expect_refused(command.run({"simulte"}), 2,
                 "unknown subcommand 'simulte'; did you mean simulate?");
  expect_refused(command.run({"trace", "shwo", "x"}), 2, "did you mean show?");
  expect_refused(command.run({"xyzzy"}), 2, "known are: trace, plan");
  expect_refused(command.run({"simulate", "--itrations", "5"}), 2,
                 "hydraulis simulate: unknown option --itrations; did you mean --iterations?");
  expect_refused(command.run({"compare", "--polices=hydraulis"}), 2, "did you mean --policies?");
  expect_refused(command.run({}), 2, "a subcommand is expected");
  expect_refused(command.run({"trace"}), 2, "import, synth, show");
}

TEST(Usage, ValuesOutOfRangeAreRefusedByName) {
  const Command command;
  const auto simulate = [&](const std::string& option, const std::string& value) {
    return command.run({"simulate", "--trace", "web-gpt2", option, value});
  };
  expect_refused(simulate("--iterations", "0"), 2, "--iterations: '0' is not a whole number");
  expect_refused(simulate("--iterations", "10000001"), 2, "from 1 to 10000000");
  expect_refused(simulate("--iterations", "99999999999999999999999"), 2, "from 1 to 10000000");
  expect_refused(simulate("--iterations", "-5"), 2, "--iterations: '-5'");
  expect_refused(simulate("--iterations", "010"), 2, "--iterations: '010'");
  expect_refused(simulate("--iterations", "0x10"), 2, "--iterations: '0x10'");
  expect_refused(simulate("--iterations", "1.5"), 2, "--iterations: '1.5'");
  expect_refused(simulate("--tokens-per-batch", "200k"), 2, "--tokens-per-batch: '200k'");
  expect_refused(simulate("--threads", "1025"), 2, "from 1 to 1024");
  expect_refused(simulate("--context", ""), 2, "--context: ''");
  expect_refused(simulate("--seed", "18446744073709551616"), 2, "--seed");
  expect_refused(simulate("--over-context", "ignore"), 2, "--over-context");
  expect_refused(simulate("--memory-model", "guess"), 2, "--memory-model");
  expect_refused(simulate("--model", ""), 2, "--model");
  expect_refused(simulate("--timeline-iteration", "3"), 2, "--timeline");
  expect_refused(command.run({"plan", "--trace", "web-gpt2", "--strategies", ""}), 2,
                 "--strategies");
  expect_refused(command.run({"simulate", "--trace", "web-gpt2", "--over-context", "truncate",
                              "--tokens-per-batch", "1000000000000"}),
                 2, "more than 1000000 sequences");
  expect_refused(simulate("--sequences-per-batch", "1000001"), 2, "from 1 to 1000000");
}

TEST(Usage, OptionsThatExcludeEachOtherAreRefused) {
  const Command command;
  expect_refused(command.run({"trace", "show", "web-gpt2", "--json", "--csv"}), 2, "--csv");
  expect_refused(command.run({"simulate", "--trace", "web-gpt2", "--tokens-per-batch", "5",
                              "--sequences-per-batch", "5"}),
                 2, "--sequences-per-batch");
  expect_refused(command.run({"compare", "--trace", "web-gpt2", "--policies", "a,,b"}), 2,
                 "an empty name");
  expect_refused(command.run({"compare", "--trace", "web-gpt2", "--policies", "a,b,a"}), 2,
                 "'a' is named twice");
}

TEST(Usage, AFullDiskIsAnErrorAndAClosedPipeIsNot) {
  const Command command;
  const Outcome full = command.run({"--help"}, "/dev/full");
  EXPECT_EQ(full.code, 2);
  EXPECT_NE(full.err.find("standard output: cannot write: No space left"), std::string::npos);
  const Outcome closed = command.run({"trace", "show", "web-gpt2"}, "");
  EXPECT_EQ(closed.code, 2);
  EXPECT_NE(closed.err.find("standard output: cannot write"), std::string::npos) << closed.err;

  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  const Outcome left =
      command.run({"trace", "show", "web-gpt2"}, "/proc/self/fd/" + std::to_string(ends[1]));
  ::close(ends[1]);
  EXPECT_EQ(left.code, 0);
  EXPECT_EQ(left.err, "");
}

TEST(Usage, ErrorsAreOneLineWhateverTheNameHolds) {
  expect_refused(Command().run({"trace", "show", "two\nlines\x1b[2J.txt"}), 2, "two lines");
}

}  // namespace
}  // namespace hydraulis
