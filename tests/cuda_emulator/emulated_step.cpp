// A rank of a job on the emulated CUDA backend that trains the tiny model, for tests of jobs whose
// ranks are processes:
//   emulated_step gpu|cpu STEPS TP PP host|device [FOLDER]
// Rank 0 prints the loss and gradient norm of each step. With a folder the job goes on from the
// checkpoint there, if there is one, and leaves one.
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "costmodel/host_states.h"
#include "kernels/cuda/process.h"
#include "runtime/run_checkpoint.h"
#include "tests/runtime/cuda_ranks.h"

namespace hydraulis::test {
namespace {

void train(const CpuProcess& host, char** arguments) {
  const cuda::Gpu gpu = cuda::start_gpu(host, 0);
  const auto host_compute = make_cpu_compute(*host.device);
  const Backend backend{gpu.device.get(), gpu.compute.get(), gpu.world.get(),   DataType::bf16,
                        host.world.get(), gpu.stream.get(),  host_compute.get()};
  Layout layout{{}, 1, {}};
  const Scheme wanted = scheme(1, std::atoi(arguments[3]), std::atoi(arguments[4]));
  const int ranks = host.world->size();
  layout.schemes.assign(static_cast<std::size_t>(ranks / wanted.devices()), wanted);
  const DecoderSpec decoder = tiny_decoder(layout);
  Trainee trainee(backend, decoder, optimizer_for(layout, ranks), 7,
                  parse_optimizer_states(arguments[5], "states"), 1000);
  RunConfig config;
  RunCheckpoint state;
  if (arguments[6] != nullptr) {
    config.output = arguments[6];
    const auto found = load_newest(backend, config.output / "checkpoints", decoder, trainee.shard(),
                                   [](const std::string&) {});
    if (found) state = *found;
    trainee.skip_updates(state.updates);
  }
  const Documents documents = random_documents({17, 9, 12, 5}, decoder.shape.vocab, 100);
  for (const std::int64_t end = state.step + std::atoi(arguments[2]); state.step < end;) {
    UpdateSettings settings;
    settings.learning_rate = 1e-2;
    const StepOutcome outcome = trainee.step(documents, layout, settings);
    state.updates = ++state.step;
    if (host.world->rank() != 0) continue;
    std::printf("%.17g %.17g\n", outcome.loss, outcome.gradient_norm);
    std::fflush(stdout);
  }
  if (!config.output.empty()) save_checkpoint(backend, config, decoder, trainee.shard(), state);
}

int run(char** arguments) {
  const auto say = [](const std::exception& error) {
    std::fprintf(stderr, "hydraulis: error: %s\n", error.what());
  };
  CpuProcess host;
  try {
    host = std::string(arguments[1]) == "gpu" ? start_host_process(1) : start_cpu_process(1);
    train(host, arguments);
  } catch (const AgreedError& error) {
    if (error.tells()) say(error);
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    say(error);
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    say(error);
    host.world->abort(static_cast<int>(ExitCode::internal));
  }
  return 0;
}

}  // namespace
}  // namespace hydraulis::test

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  return hydraulis::test::run(argv);
}
