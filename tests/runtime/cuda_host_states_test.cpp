// Optimizer states in host memory: the same training as with them on the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/run_checkpoint.h"
#include "tests/base/temporary_folder.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/cuda_emulator/omissions.h"
#include "tests/runtime/cuda_ranks.h"

namespace hydraulis::test {
namespace {

using Tensors = std::map<std::string, std::vector<double>>;

constexpr std::int64_t kBucket = 1000;  // many a shard, none ends with a tensor

const std::vector<int> kLengths = {17, 9};

UpdateSettings settings(OptimizerKind kind) {
  UpdateSettings s;
  s.optimizer = kind;
  s.learning_rate = 1e-2;
  s.clip_norm = 0.5;  // below the norms seen: gradients are clipped
  return s;
}

struct Course {
  std::vector<double> losses;
  std::vector<double> norms;
  Tensors first_parameters;  ///< after one step
  Tensors parameters;
  Tensors moments;
  std::int64_t device_bytes = 0;
  std::int64_t elements = 0;
};

Course train(const Layout& layout, OptimizerStates states, OptimizerKind kind, int steps,
             std::int64_t bucket = kBucket) {
  const int devices = devices_of(layout);
  const DecoderSpec decoder = tiny_decoder(layout);
  const Documents documents = random_documents(kLengths, decoder.shape.vocab, 100);
  std::vector<Course> courses(devices);
  emulator::set_seed(static_cast<std::uint64_t>(steps));
  const auto thrown = run_ranks(devices, [&](std::shared_ptr<Communicator> hosts) {
    const CudaRank rank(std::move(hosts));
    Trainee trainee(rank.backend(), decoder, optimizer_for(layout, devices), 7, states, bucket);
    Course& course = courses[rank.world->rank()];
    course.device_bytes = rank.device->memory().allocated;
    course.elements = trainee.shard().elements();
    for (int step = 0; step < steps; ++step) {
      const StepOutcome outcome = trainee.step(documents, layout, settings(kind));
      EXPECT_TRUE(outcome.updated);
      course.losses.push_back(outcome.loss);
      course.norms.push_back(outcome.gradient_norm);
      if (step == 0) course.first_parameters = trainee.parameters();
    }
    course.parameters = trainee.parameters();
    course.moments = trainee.tensors(trainee.shard().second_moments());
  });
  EXPECT_EQ(emulator::take_fault(), "");
  for (const std::string& text : thrown) EXPECT_EQ(text, "");
  return courses[0];
}

class HostStates : public testing::TestWithParam<NamedLayout> {};

// The arithmetic is that of the CPU's kernels instead of the device's: both f32, but one fuses
// multiplications and additions where the other need not.
TEST_P(HostStates, TrainsAsOnTheDevice) {
  const Layout& layout = GetParam().layout;
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::lamb}) {
    const Course device = train(layout, OptimizerStates::device, kind, 3);
    const Course host = train(layout, OptimizerStates::host, kind, 3);
    EXPECT_EQ(host.elements, device.elements);
    // Master and two moments of each element.
    EXPECT_EQ(device.device_bytes - host.device_bytes, 12 * host.elements);
    EXPECT_EQ(host.losses[0], device.losses[0]);
    EXPECT_EQ(host.norms[0], device.norms[0]);
    for (const auto& [name, values] : device.first_parameters) {
      EXPECT_LT(relative_difference(host.first_parameters.at(name), values), 1e-6) << name;
    }
    for (int step = 1; step < 3; ++step) {
      EXPECT_NEAR(host.losses[step], device.losses[step], 2e-4 * device.losses[step]) << step;
      EXPECT_NEAR(host.norms[step], device.norms[step], 2e-3 * device.norms[step]) << step;
    }
    EXPECT_LT(host.losses[2], host.losses[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, HostStates,
                         testing::Values(NamedLayout{"single", {{scheme(1, 1, 1)}, 1, {}}},
                                         NamedLayout{"dp2",
                                                     {{scheme(1, 1, 1), scheme(1, 1, 1)}, 1, {}}},
                                         NamedLayout{"tp2_pp2", {{scheme(1, 2, 2)}, 2, {}}}),
                         layout_name);

TEST(HostStates, GiveTheSameBitsWhateverTheBuckets) {
  const Layout layout{{scheme(1, 1, 1)}, 1, {}};
  const Course one = train(layout, OptimizerStates::host, OptimizerKind::adamw, 2, 1 << 20);
  const Course many = train(layout, OptimizerStates::host, OptimizerKind::adamw, 2, 777);
  EXPECT_EQ(many.losses, one.losses);
  EXPECT_EQ(many.parameters, one.parameters);
  EXPECT_EQ(many.moments, one.moments);
}

// A checkpoint of host states goes on on the device, and the other way round.
TEST(HostStates, CheckpointsFitBothPlacements) {
  const Layout layout{{scheme(1, 2, 1)}, 1, {}};
  const DecoderSpec decoder = tiny_decoder(layout);
  const Documents documents = random_documents(kLengths, decoder.shape.vocab, 100);
  for (const OptimizerStates from : {OptimizerStates::host, OptimizerStates::device}) {
    const OptimizerStates to =
        from == OptimizerStates::host ? OptimizerStates::device : OptimizerStates::host;
    const TemporaryFolder folder;
    RunConfig config;
    config.output = folder.path();
    emulator::set_seed(3);
    const auto thrown = run_ranks(2, [&](std::shared_ptr<Communicator> hosts) {
      const CudaRank rank(std::move(hosts));
      const Backend backend = rank.backend();
      Trainee trainee(backend, decoder, optimizer_for(layout, 2), 7, from, kBucket);
      trainee.step(documents, layout, settings(OptimizerKind::adamw));
      RunCheckpoint state;
      state.step = 1;
      save_checkpoint(backend, config, decoder, trainee.shard(), state);
      Trainee resumed(backend, decoder, optimizer_for(layout, 2), 8, to, kBucket);
      const auto found = load_newest(backend, folder.path() / "checkpoints", decoder,
                                     resumed.shard(), [](const std::string&) {});
      ASSERT_TRUE(found.has_value());
      EXPECT_EQ(resumed.parameters(), trainee.parameters());
      EXPECT_EQ(resumed.tensors(resumed.shard().first_moments()),
                trainee.tensors(trainee.shard().first_moments()));
      EXPECT_EQ(resumed.tensors(resumed.shard().second_moments()),
                trainee.tensors(trainee.shard().second_moments()));
      // What stages compute with follows what was loaded.
      EXPECT_EQ(resumed.evaluate(documents, deal(documents, layout)).loss,
                trainee.evaluate(documents, deal(documents, layout)).loss);
    });
    EXPECT_EQ(emulator::take_fault(), "");
    for (const std::string& text : thrown) EXPECT_EQ(text, "");
  }
}

/// Two updates of a HostOptimizer beside a device: gradients that the computing stream still makes,
/// rounded parameters that another stream reads right after.
class HostUpdate : public testing::Test {
 protected:
  static constexpr std::int64_t kElements = 2500;
  static constexpr unsigned kAll = 1000;  ///< no wait is left out

  /// The rounded parameters after the first and the second, as f32. In the second, the stream's
  /// `left_out`-th wait for another is left out.
  static std::array<std::vector<float>, 2> updates(std::uint64_t seed, unsigned left_out = kAll) {
    emulator::set_seed(seed);
    const auto host = cpu::make_device(2, 0);
    const auto device = cuda::make_device(0);
    const auto stream = device->make_stream();
    const auto other = device->make_stream();
    const auto compute = cuda::make_compute(*device);
    const auto host_compute = make_cpu_compute(*host);
    const Backend backend{device.get(), compute.get(), nullptr,           DataType::bf16,
                          nullptr,      stream.get(),  host_compute.get()};
    HostOptimizer optimizer(backend, kElements, kBucket);
    const Tensor half(backend, DataType::f32, 1, kElements);
    const Tensor gradients(backend, DataType::f32, 1, kElements);
    const Tensor rounded(backend, 1, kElements);
    const Tensor wide(backend, DataType::f32, 1, kElements);
    std::vector<float> values = numbers();
    std::copy(values.begin(), values.end(), optimizer.parameters().as<float>());
    const std::vector<OptimizerStretch> stretches = {{0, 1700, true}, {1700, 800, false}};
    std::array<std::vector<float>, 2> results;
    for (int round = 0; round < 2; ++round) {
      device->copy_to_device(half.matrix.data, values.data(), half.bytes(), *stream);
      compute->add(half.matrix, half.matrix, gradients.matrix, *stream);
      OptimizerStep settings = step();
      settings.step = round + 1;
      if (round == 1) emulator::leave_out(emulator::Omission::event_wait, left_out);
      optimizer.adamw(settings, stretches, gradients.matrix, rounded.matrix, *stream);
      optimizer.wait_for_parameters(rounded.matrix, *other);
      emulator::leave_out(emulator::Omission::none);
      compute->convert(rounded.matrix, wide.matrix, *other);
      results[round].resize(kElements);
      device->copy_to_host(results[round].data(), wide.matrix.data, wide.bytes(), *other);
      device->wait(*stream, device->record(*other));
      std::reverse(values.begin(), values.end());
    }
    device->synchronize(*stream);
    return results;
  }

  static OptimizerStep step() {
    OptimizerStep s;
    s.learning_rate = 0.1;
    s.weight_decay = 0.1;
    return s;
  }
  static std::vector<float> numbers() {
    std::vector<float> values(kElements);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = std::sin(static_cast<float>(i));
    }
    return values;
  }
};

/// To bf16 and back, by arithmetic: 8 bits of significand, ties to even.
float as_bf16(float value) {
  int exponent = 0;
  const float fraction = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8);
}

TEST_F(HostUpdate, IsAdamsFirstStep) {
  const std::vector<float> before = numbers();
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const std::vector<float> after = updates(seed)[0];
    EXPECT_EQ(emulator::take_fault(), "");
    for (std::size_t i = 0; i < after.size(); ++i) {
      // Bias-corrected, the first direction is the gradient's sign, g / (|g| + epsilon).
      const double p = before[i];
      const double direction = 2 * p / (std::abs(2 * p) + 1e-8);
      const double expected = p - 0.1 * direction - (i < 1700 ? 0.01 * p : 0);
      ASSERT_NEAR(after[i], as_bf16(static_cast<float>(expected)), 0.004 * std::abs(expected)) << i;
    }
  }
}

// Both waits of streams for one another are needed: the copy down for what makes gradients, readers
// for the copy up.
TEST_F(HostUpdate, AWaitLeftOutIsFound) {
  const auto right = updates(0);
  ASSERT_EQ(emulator::take_fault(), "");
  for (unsigned number = 0; number < 2; ++number) {
    bool found = false;
    for (std::uint64_t seed = 0; seed < 12 && !found; ++seed) {
      std::array<std::vector<float>, 2> results;
      try {
        results = updates(seed, number);
      } catch (const std::exception&) {
        // The fault says why.
      }
      emulator::leave_out(emulator::Omission::none);
      found = !emulator::take_fault().empty() || results != right;
    }
    EXPECT_TRUE(found) << "wait " << number;
  }
}

}  // namespace
}  // namespace hydraulis::test
