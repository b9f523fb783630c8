#include "sim/provenance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "costmodel/build_cost_model.h"
#include "costmodel/compose.h"
#include "costmodel/host_states.h"
#include "costmodel/nccl_tests.h"
#include "tests/base/temporary_folder.h"
#include "tests/costmodel/synthetic_machine.h"

namespace hydraulis {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

CostModel model_on(const std::string& cluster, const std::string& profile = "",
                   MemoryModel memory = MemoryModel::published) {
  const ModelSpec model = load_model("llama-32b");
  const ClusterSpec spec = load_cluster(cluster);
  return make_cost_model(model, spec,
                         profile.empty() ? default_profile(model, spec) : load_profile(profile),
                         memory, {spec.devices() / 16, 16, 1});
}

/// A profile of operators of the synthetic machine, changed before its fits are made.
template <typename Change>
CostModel measured_model(ClusterSpec cluster, Change change) {
  OperatorProfile profile = testing::measure(testing::SyntheticMachine(), testing::tiny_model());
  change(profile);
  return make_cost_model(testing::tiny_model(), cluster,
                         operator_profile(measured_operators(std::move(profile), "test")),
                         MemoryModel::composed, {cluster.devices(), 1, 1});
}

/// "stage times: measured", …
std::vector<std::string> kinds(const std::vector<Source>& sources) {
  std::vector<std::string> lines;
  for (const Source& source : sources) {
    lines.push_back(source.what + ": " + to_string(source.kind));
  }
  return lines;
}

CostingOptions collectives() {
  CostingOptions options;
  options.collectives = CollectiveAlgorithm::automatic;
  return options;
}

TEST(Provenance, PublishedCoefficientsAreMeasuredAndTheirNetworkIsAssumed) {
  const CostingOptions links;
  const auto sources = sources_of(model_on("a800-64"), &links);
  const auto lines = kinds(sources);
  EXPECT_THAT(lines, Contains("stage times: measured"));
  EXPECT_THAT(lines, Contains("memory (published formula): measured"));
  EXPECT_THAT(lines, Contains("link inside a node: data sheet"));
  EXPECT_THAT(lines, Contains("link between nodes: assumed"));
  EXPECT_THAT(lines, Contains("link latencies: prior"));
  EXPECT_THAT(lines, Contains("optimizer step: data sheet"));
  EXPECT_THAT(lines, Contains("peak rate (of MFU): data sheet"));
  EXPECT_THAT(lines, Not(Contains(HasSubstr("imported"))));
  EXPECT_THAT(sources.front().detail, HasSubstr("lhy101/Hydraulis"));
}

TEST(Provenance, ADeviceNobodyMeasuredIsOfItsDataSheet) {
  const CostingOptions links;
  const CostModel model = model_on("h100-64", "", MemoryModel::composed);
  const auto lines = kinds(sources_of(model, &links));
  EXPECT_THAT(lines, Contains("stage times: data sheet"));
  EXPECT_THAT(lines, Contains("link between nodes: data sheet"));
  EXPECT_THAT(lines, Contains("memory constant: measured")) << "that of the A800";
}

TEST(Provenance, CollectivesOfALibraryAreAPriorWhereItKnowsTheDevices) {
  const CostingOptions options = collectives();
  EXPECT_THAT(kinds(sources_of(model_on("a800-64"), &options)),
              Contains("gradient reductions: prior"));
  CostModel other = model_on("a800-64");
  other.cluster.device.name = "other";
  other.cluster.origin = "file";
  const auto lines = kinds(sources_of(other, &options));
  EXPECT_THAT(lines, Contains("gradient reductions: stated"));
  EXPECT_THAT(lines, Contains("optimizer step: stated"));
}

TEST(Provenance, StatesInHostMemoryStepByTheHostsFigures) {
  CostModel model = model_on("a800-64");
  model.states = OptimizerStates::host;
  const CostingOptions links;
  const auto sources = sources_of(model, &links);
  const auto step = std::ranges::find(sources, "optimizer step", &Source::what);
  ASSERT_NE(step, sources.end());
  EXPECT_EQ(step->kind, SourceKind::data_sheet);
  EXPECT_EQ(step->detail, host_step_text(model.cluster));
}

TEST(Provenance, WithoutCommunicationNothingIsSaidOfTheNetwork) {
  CostingOptions none;
  none.no_communication = true;
  for (const bool given : {true, false}) {
    const auto lines = kinds(sources_of(model_on("a800-64"), given ? &none : nullptr));
    EXPECT_THAT(lines, Contains("stage times: measured"));
    EXPECT_THAT(lines, Not(Contains(HasSubstr("link"))));
    EXPECT_THAT(lines, Not(Contains(HasSubstr("optimizer step"))));
  }
}

TEST(Provenance, MeasuredOperatorsSayEachTheirOwn) {
  const CostingOptions options = collectives();
  const CostModel model = measured_model(testing::tiny_cluster(1, 4), [](OperatorProfile& p) {
    p.machine.date = "2026-01-02";
    std::erase_if(p.collectives, [](const CollectiveSample& sample) {
      return sample.operation == Collective::reduce_scatter;
    });
  });
  const auto sources = sources_of(model, &options, "lab.h5");
  const auto lines = kinds(sources);
  for (const char* what : {"matrix products", "attention", "row-wise kernels",
                           "tensor-parallel all_gather", "parameter gathers", "optimizer step"}) {
    EXPECT_THAT(lines, Contains(std::string(what) + ": measured"));
  }
  EXPECT_THAT(lines, Not(Contains("gradient reductions: measured"))) << "nobody measured it";
  EXPECT_THAT(lines, Contains(HasSubstr("gradient reductions: ")));
  EXPECT_THAT(sources.front().detail, HasSubstr("2026-01-02"));
  EXPECT_THAT(sources.front().detail, HasSubstr("(lab.h5)"));
}

TEST(Provenance, ImportedCollectivesNameTheirFileThroughTheProfilesFile) {
  const TemporaryFolder folder;
  const std::string text =
      "# nThread 1 nGpus 4 minBytes 1024 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20\n"
      "#   Rank  0 Group  0 Pid 1 on node1 device  0 [0x07] NVIDIA H100\n"
      "#   Rank  1 Group  0 Pid 1 on node1 device  1 [0x08] NVIDIA H100\n"
      "#   Rank  2 Group  0 Pid 1 on node1 device  2 [0x09] NVIDIA H100\n"
      "#   Rank  3 Group  0 Pid 1 on node1 device  3 [0x0a] NVIDIA H100\n"
      "#       size         count      type   redop    root     time   algbw   busbw #wrong     "
      "time "
      "  algbw   busbw #wrong\n"
      "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            "
      "(us) "
      " (GB/s)  (GB/s)\n"
      "     1048576        262144     float     sum      -1    40.00   26.21   39.32      0    "
      "40.00 "
      "  26.21   39.32      0\n"
      "     4194304       1048576     float     sum      -1    80.00   52.43   78.64      0    "
      "80.00 "
      "  52.43   78.64      0\n";
  NcclTestsOptions how;
  how.operation = Collective::all_reduce;
  OperatorProfile profile = testing::measure(testing::SyntheticMachine(), testing::tiny_model());
  add_imported(parse_nccl_tests(text, "reduce.txt", how), "reduce.txt", profile);
  write_operator_profile(profile, folder / "p.h5");
  const Profile read = load_profile((folder / "p.h5").string());
  const ClusterSpec cluster = testing::tiny_cluster(1, 4);
  const CostModel model =
      make_cost_model(testing::tiny_model(), cluster, read, MemoryModel::composed, {4, 1, 1});
  const CostingOptions options = collectives();
  const auto sources = sources_of(model, &options);
  const auto lines = kinds(sources);
  EXPECT_THAT(lines, Contains("barriers and the gradients' norm: imported"));
  EXPECT_THAT(lines, Contains("parameter gathers: measured"));
  const auto imported = std::ranges::find(sources, SourceKind::imported, &Source::kind);
  ASSERT_NE(imported, sources.end());
  EXPECT_EQ(imported->detail, "nccl-tests, reduce.txt");
}

TEST(Provenance, OperatorsOfAnotherDeviceAreCarriedOverByDataSheet) {
  ClusterSpec cluster = testing::tiny_cluster(1, 4);
  cluster.device.name = "h100";
  cluster.cores_per_node = 0;
  const CostModel model = measured_model(cluster, [](OperatorProfile& p) {
    p.machine.peak_flops = 60e9;
    p.machine.memory_bytes_per_second = 20e9;
  });
  const CostingOptions options = collectives();
  const auto lines = kinds(sources_of(model, &options));
  EXPECT_THAT(lines, Contains("matrix products: data sheet"));
  EXPECT_THAT(lines, Contains("tensor-parallel all_gather: prior"));
  EXPECT_THAT(lines, Contains("parameter gathers: prior"));
}

TEST(Provenance, OneLineAndJsonHaveThemAll) {
  const std::vector<Source> sources = {{"stage times", SourceKind::measured, "a"},
                                       {"link", SourceKind::data_sheet, "b"},
                                       {"attention", SourceKind::measured, "c"}};
  EXPECT_EQ(sources_line(sources), "numbers: measured (stage times, attention); data sheet (link)");
  const Json json = sources_json(sources);
  ASSERT_EQ(json.size(), 3U);
  EXPECT_EQ(json[1], (Json{{"what", "link"}, {"source", "data sheet"}, {"detail", "b"}}));
}

}  // namespace
}  // namespace hydraulis
