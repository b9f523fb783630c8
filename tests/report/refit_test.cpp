#include "report/refit.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/base/temporary_folder.h"
#include "tests/report/profile_example.h"

namespace hydraulis {
namespace {

void add(Timeline& timeline, int iteration, int stage, int instruction, Op op, double start,
         double end) {
  const StreamKind stream = op == Op::gather_parameters || op == Op::reduce_gradients
                                ? StreamKind::parameters
                            : op == Op::gradient_norm ? StreamKind::collective
                                                      : StreamKind::compute;
  timeline.events.push_back({iteration, stage, instruction, op, stream, -1, start, end});
}

/// Two pipelines; the second computes 1.5 times as long, and the first waits for it in the
/// reduction.
Timeline two_pipelines(double gather, double forward, double backward, double reduce, double norm,
                       double step) {
  Timeline timeline;
  timeline.tracks = {{0, 0, "(1,1,1)", {0}}, {1, 0, "(1,1,1,recompute=full)", {1}}};
  double begin = 3;
  for (int i = 0; i < 2; ++i) {
    double done = 0;
    for (int s = 0; s < 2; ++s) {
      const double longer = s == 0 ? 1 : 1.5;
      const double forwarded = begin + gather + longer * forward;
      const double backwarded = forwarded + longer * backward;
      add(timeline, i, s, 0, Op::gather_parameters, begin, begin + gather);
      add(timeline, i, s, 1, Op::forward, begin + gather, forwarded);
      add(timeline, i, s, 2, Op::backward, forwarded, backwarded);
      done = std::max(done, backwarded);
    }
    for (int s = 0; s < 2; ++s) {
      add(timeline, i, s, 3, Op::reduce_gradients, begin + gather + forward, done + reduce);
      add(timeline, i, s, 4, Op::gradient_norm, done + reduce, done + reduce + norm);
      add(timeline, i, s, 5, Op::optimizer_step, done + reduce + norm, done + reduce + norm + step);
    }
    begin = done + reduce + norm + step;
  }
  return timeline;
}

double factor(const std::vector<Correction>& found, CorrectedTime time, const std::string& scheme) {
  OperatorProfile profile;
  profile.corrections = found;
  return correction(profile, time, scheme);
}

TEST(Refit, FindsWhatEveryTimeIsOffBy) {
  const auto found =
      corrections(two_pipelines(1, 4, 8, 2, 0.5, 1), two_pipelines(3, 5, 8, 1, 0.75, 4));
  EXPECT_EQ(found.size(), 10u);
  for (const char* scheme : {"(1,1,1)", "(1,1,1,recompute=full)", "(1,2,4)", ""}) {
    EXPECT_NEAR(factor(found, CorrectedTime::forward, scheme), 1.25, 1e-12);
    EXPECT_NEAR(factor(found, CorrectedTime::backward, scheme), 1, 1e-12);
  }
  EXPECT_NEAR(factor(found, CorrectedTime::gather_parameters, ""), 3, 1e-12);
  EXPECT_NEAR(factor(found, CorrectedTime::reduce_gradients, ""), 0.5, 1e-12);
  EXPECT_NEAR(factor(found, CorrectedTime::gradient_norm, ""), 1.5, 1e-12);
  EXPECT_NEAR(factor(found, CorrectedTime::optimizer_step, ""), 4, 1e-12);
}

TEST(Refit, TimesThatAreNotThereAreLeftAlone) {
  const auto found =
      corrections(two_pipelines(0, 4, 8, 2, 0.5, 1), two_pipelines(3, 5, 8, 0, 0.75, 4));
  EXPECT_EQ(factor(found, CorrectedTime::gather_parameters, ""), 1);
  EXPECT_EQ(factor(found, CorrectedTime::reduce_gradients, ""), 1);
}

TEST(Refit, CorrectionsMultiplyAndAreStored) {
  const TemporaryFolder folder;
  OperatorProfile profile = test::example_profile();
  add_corrections(
      profile, {{CorrectedTime::forward, "(1,2,1)", 1.5}, {CorrectedTime::optimizer_step, "", 2}});
  add_corrections(
      profile, {{CorrectedTime::forward, "(1,2,1)", 0.5}, {CorrectedTime::forward, "(1,1,2)", 3}});
  write_operator_profile(profile, folder / "p.h5");
  const OperatorProfile back = read_operator_profile(folder / "p.h5");
  ASSERT_EQ(back.corrections.size(), 3u);
  EXPECT_EQ(correction(back, CorrectedTime::forward, "(1,2,1)"), 0.75);
  EXPECT_EQ(correction(back, CorrectedTime::forward, "(1,1,2)"), 3);
  EXPECT_EQ(correction(back, CorrectedTime::optimizer_step), 2);
  EXPECT_EQ(correction(back, CorrectedTime::backward, "(1,2,1)"), 1);
  profile.corrections[0].factor = -1;
  EXPECT_THROW(write_operator_profile(profile, folder / "bad.h5"), InputError);
  profile.corrections[0] = {CorrectedTime::forward, "(1,2", 1};
  EXPECT_THROW(write_operator_profile(profile, folder / "bad.h5"), InputError);
}

}  // namespace
}  // namespace hydraulis
