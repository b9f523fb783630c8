// A strategy changes where work is done, never what is computed: every layout against one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/training_course.h"

namespace hydraulis::test {
namespace {

constexpr Recompute kFull = Recompute::full;
constexpr Recompute kSelective = Recompute::selective;

const std::vector<NamedLayout>& cases() {
  static const std::vector<NamedLayout> all = {
      {"single", {{scheme(1, 1, 1)}, 2, {}}},
      {"single_recompute", {{scheme(1, 1, 1, kFull)}, 2, {}}},
      {"dp2", {{scheme(1, 1, 1), scheme(1, 1, 1)}, 2, {}}},
      {"tp2", {{scheme(1, 2, 1)}, 2, {1, 2, 1}}},
      {"tp2_selective", {{scheme(1, 2, 1, kSelective)}, 2, {}}},
      {"pp2", {{scheme(1, 1, 2)}, 3, {1, 1, 2}}},
      {"cp2", {{scheme(2, 1, 1)}, 2, {}}},
      {"dp4", {std::vector<Scheme>(4, scheme(1, 1, 1)), 1, {}}},
      {"tp4", {{scheme(1, 4, 1)}, 2, {}}},
      {"tp2_dp2", {{scheme(1, 2, 1), scheme(1, 2, 1)}, 2, {2, 2, 1}}},
      {"pp4_1", {{scheme(1, 1, 4)}, 1, {}}},
      {"pp4_2", {{scheme(1, 1, 4)}, 2, {}}},
      {"pp4_3", {{scheme(1, 1, 4)}, 3, {1, 1, 4}}},
      {"pp4_8", {{scheme(1, 1, 4, kFull)}, 8, {}}},
      {"cp2_tp2", {{scheme(2, 2, 1)}, 2, {}}},
      {"cp4", {{scheme(4, 1, 1)}, 2, {}}},
      {"pp2_tp2_dp2", {{scheme(1, 2, 2), scheme(1, 2, 2)}, 3, {2, 2, 2}}},
      {"tp4_tp2_tp1_tp1",
       {{scheme(1, 4, 1), scheme(1, 2, 1), scheme(1, 1, 1), scheme(1, 1, 1)}, 2, {}}},
      {"tp2pp2_tp2_pp2", {{scheme(1, 2, 2), scheme(1, 2, 1), scheme(1, 1, 2)}, 2, {4, 2, 1}}},
      {"cp2tp2_tp2_tp1_tp1",
       {{scheme(2, 2, 1), scheme(1, 2, 1), scheme(1, 1, 1), scheme(1, 1, 1)}, 2, {}}},
      {"cp2pp2_tp4", {{scheme(2, 1, 2, kSelective), scheme(1, 4, 1)}, 2, {2, 4, 1}}},
  };
  return all;
}

class ParallelTraining : public testing::TestWithParam<NamedLayout> {};

TEST_P(ParallelTraining, GivesTheSingleDevicesLossesAndParameters) {
  const Layout& layout = GetParam().layout;
  const int devices = devices_of(layout);
  const DecoderSpec decoder = small_decoder();
  for (const DataType type : {DataType::f64, DataType::f32}) {
    SCOPED_TRACE(to_string(type));
    Trainee trainee(*mpi_process().world, type, decoder, optimizer_for(layout, devices));
    const Course course = train(trainee, decoder, [&](int, const Documents&) { return layout; });
    const bool exact = type == DataType::f64;
    expect_same(course, course_alone(type, decoder), exact ? 1e-9 : 1e-4, exact ? 1e-9 : 5e-3,
                exact ? 1e-9 : 1e-3);
    EXPECT_LT(course.losses.back(), course.losses.front());
  }
}

TEST_P(ParallelTraining, TiedEmbeddings) {
  const Layout& layout = GetParam().layout;
  const int devices = devices_of(layout);
  DecoderSpec decoder = small_decoder();
  decoder.shape.tied_embeddings = true;
  Trainee trainee(*mpi_process().world, DataType::f64, decoder, optimizer_for(layout, devices));
  const Course course = train(trainee, decoder, [&](int, const Documents&) { return layout; });
  expect_same(course, course_alone(DataType::f64, decoder), 1e-9, 1e-9, 1e-9);
}

INSTANTIATE_TEST_SUITE_P(Layouts, ParallelTraining, testing::ValuesIn(layouts_here(cases())),
                         layout_name);

TEST(ParallelTraining, AStrategyThatChangesEveryStep) {
  const int devices = mpi_process().world->size();
  const std::vector<NamedLayout> layouts = layouts_here(cases());
  ASSERT_GE(layouts.size(), 2U) << "nothing to change between on " << devices << " ranks";
  const DecoderSpec decoder = small_decoder();
  OptimizerLayout optimizer;
  optimizer.dp = devices;
  Trainee trainee(*mpi_process().world, DataType::f64, decoder, optimizer);
  const Course course = train(trainee, decoder, [&](int step, const Documents&) {
    return layouts[step % layouts.size()].layout;
  });
  expect_same(course, course_alone(DataType::f64, decoder), 1e-9, 1e-9, 1e-9);
}

}  // namespace
}  // namespace hydraulis::test
