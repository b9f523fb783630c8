#include <string>

#include "tests/cli/command.h"

namespace hydraulis {
namespace {

const std::string kSelene = HYDRAULIS_SOURCE_DIR "/experiments/validation/a100_selene.csv";

TEST(ValidateCommand, PrintsRowsParametersAndTotals) {
  const Command command;
  const Outcome text = command.run({"validate", kSelene});
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char* part : {"megatron-1t", "Parameters", "inter_node", "formula", "all "}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part;
  }
  const Json json = command.json({"validate", kSelene, "--leave-one-out", "model"});
  EXPECT_EQ(json.at("rows").size(), 8u);
  EXPECT_LT(json.at("mean_abs_error").get<double>(), 0.06);
  const Outcome csv = command.run({"validate", kSelene, "--csv"});
  EXPECT_EQ(csv.out.rfind("line,model,layout,measured_ms,predicted_ms,error,", 0), 0u) << csv.out;
}

TEST(ValidateCommand, RefusesBadInput) {
  const Command command;
  command.folder().write("bad.csv", "layers,hidden,iteration_ms\n12,x,5\n");
  expect_refused(command.run({"validate", "bad.csv"}), 2,
                 "bad.csv: line 2, column 'hidden': 'x', expected a whole number");
  expect_refused(command.run({"validate", "none.csv"}), 2, "none.csv");
  expect_refused(command.run({"validate", kSelene, "--device", "a101"}), 2, "a100-cluster");
  expect_refused(command.run({"validate", kSelene, "--leave-one-out", "colour"}), 2, "colour");
  expect_refused(
      command.run({"validate", kSelene, "--leave-one-out", "model", "--fit-on", kSelene}), 2,
      "--fit-on");
  command.folder().write("one.csv", "size(B),time(ns)\n9,nan\n");
  expect_refused(command.run({"validate", kSelene, "--all-reduce", "one.csv"}), 2,
                 "one.csv: line 2, column 'time(ns)'");
}

}  // namespace
}  // namespace hydraulis
