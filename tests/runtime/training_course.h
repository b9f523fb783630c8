// Twenty steps of training, compared with those of one device.
#pragma once

#include <gtest/gtest.h>

#include "tests/runtime/training_run.h"

namespace hydraulis::test {

inline const std::vector<int> kCourseLengths = {17, 1, 9,  30, 4,  2, 21, 8,
                                                13, 5, 26, 3,  11, 7, 19, 6};
inline constexpr int kSteps = 20;

inline UpdateSettings course_settings() {
  UpdateSettings s;
  s.learning_rate = 5e-3;
  s.clip_norm = 0.5;
  return s;
}

struct Course {
  std::vector<double> losses;
  std::vector<double> norms;
  std::map<std::string, std::vector<double>> parameters;
};

/// `layout_of`(step, documents): a Layout or a BatchPlan.
template <typename LayoutOf>
Course train(Trainee& trainee, const DecoderSpec& decoder, const LayoutOf& layout_of) {
  Course course;
  for (int step = 0; step < kSteps; ++step) {
    const Documents documents = random_documents(kCourseLengths, decoder.shape.vocab, 100 + step);
    const StepOutcome outcome =
        trainee.step(documents, layout_of(step, documents), course_settings());
    EXPECT_TRUE(outcome.updated);
    course.losses.push_back(outcome.loss);
    course.norms.push_back(outcome.gradient_norm);
  }
  course.parameters = trainee.parameters();
  return course;
}

inline const Course& course_alone(DataType type, const DecoderSpec& decoder) {
  static std::map<std::pair<DataType, bool>, Course> courses;
  const auto key = std::pair(type, decoder.shape.tied_embeddings);
  if (!courses.contains(key)) {
    Trainee trainee(alone(), type, decoder, {});
    courses[key] = train(trainee, decoder, [](int, const Documents&) {
      return Layout{{scheme(1, 1, 1)}, 1, {}};
    });
  }
  return courses.at(key);
}

/// Gradient norms, which single precision lets drift further than losses, within fifty times the
/// losses' tolerance.
inline void expect_same(const Course& course, const Course& reference, double loss_tolerance,
                        double norm_tolerance, double parameter_tolerance) {
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(course.losses[step], reference.losses[step],
                loss_tolerance * reference.losses[step])
        << "loss of step " << step;
    EXPECT_NEAR(course.norms[step], reference.norms[step], norm_tolerance * reference.norms[step])
        << "gradient norm of step " << step;
  }
  for (const auto& [name, values] : reference.parameters) {
    EXPECT_LE(relative_difference(course.parameters.at(name), values), parameter_tolerance) << name;
  }
}

}  // namespace hydraulis::test
