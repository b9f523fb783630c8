// How a process comes to its GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "kernels/cuda/process.h"
#include "runtime/backend/run_backend.h"
#include "tests/base/temporary_folder.h"
#include "tests/cuda_emulator/emulator.h"

namespace hydraulis {
namespace {

using testing::HasSubstr;

cuda::RankDevice rank_on(const char* node, int node_rank, int node_ranks, int devices, int gpu) {
  cuda::RankDevice rank;
  std::strcpy(rank.node, node);
  rank.identity[0] = static_cast<char>(gpu);
  rank.node_rank = node_rank;
  rank.node_ranks = node_ranks;
  rank.devices = devices;
  return rank;
}

std::string said_of(const std::vector<cuda::RankDevice>& ranks) {
  try {
    cuda::check_devices(ranks);
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

TEST(CudaDevices, EveryRankItsOwn) {
  EXPECT_EQ(said_of({rank_on("a", 0, 2, 2, 1), rank_on("a", 1, 2, 2, 2), rank_on("b", 0, 1, 2, 3)}),
            "");
  // A launcher that shows each rank one GPU.
  EXPECT_EQ(said_of({rank_on("a", 0, 2, 1, 1), rank_on("a", 1, 2, 1, 2)}), "");
}

TEST(CudaDevices, MoreRanksThanDevicesIsOneMessage) {
  const std::string said =
      said_of({rank_on("a", 0, 1, 1, 1), rank_on("b", 0, 2, 1, 2), rank_on("b", 1, 2, 1, 2)});
  EXPECT_THAT(said, HasSubstr("node b: 2 ranks and 1 GPU; ranks 1 and 2 would share one"));
  EXPECT_THAT(said, HasSubstr("--map-by ppr:1:node"));
}

TEST(CudaDevices, ANodeWithoutOneIsNamed) {
  auto without = rank_on("c", 0, 1, 0, 0);
  std::strcpy(without.trouble, "no driver");
  EXPECT_EQ(said_of({rank_on("a", 0, 1, 1, 1), without}),
            "rank 1 on node c: CUDA finds no GPU: no driver");
}

RunConfig config_of(const std::string& lines) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "run.json";
  std::ofstream(file) << R"({"plan": "p", "output": "o", "steps": 1, "data": {})" << lines << "}";
  return load_run_config(file);
}

std::string refused(const std::string& lines) {
  try {
    config_of(lines);
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

TEST(RunBackend, TheFileChooses) {
  const RunConfig cpu = config_of("");
  EXPECT_EQ(cpu.device, RunDevice::cpu);
  EXPECT_EQ(cpu.type, DataType::f32);
  const RunConfig gpu = config_of(R"(, "device": "cuda")");
  EXPECT_EQ(gpu.device, RunDevice::cuda);
  EXPECT_EQ(gpu.type, DataType::bf16);
  EXPECT_THAT(refused(R"(, "device": "gpu")"), HasSubstr("expected cpu or cuda"));
  EXPECT_THAT(refused(R"(, "precision": "bf16")"), HasSubstr("bf16 needs a GPU"));
  EXPECT_THAT(refused(R"(, "device": "cuda", "precision": "f32")"), HasSubstr("expected bf16"));
  EXPECT_EQ(config_of(R"(, "device": "cuda", "optimizer_states": "host")").optimizer_states,
            OptimizerStates::host);
  EXPECT_THAT(refused(R"(, "optimizer_states": "host")"), HasSubstr("\"host\" needs GPUs"));
  EXPECT_THAT(refused(R"(, "device": "cuda", "optimizer_states": "disk")"),
              HasSubstr("expected device or host"));
}

TEST(RunBackend, AWorldOfOneComputesOnItsGpu) {
  emulator::set_seed(1);
  CpuProcess host = start_cpu_process(1);
  const RunConfig config = config_of(R"(, "device": "cuda")");
  check_backend(config);
  {
    const RunBackend chosen(host, config, std::int64_t{1} << 20);
    const Backend& backend = chosen.backend();
    EXPECT_EQ(backend.type, DataType::bf16);
    EXPECT_EQ(backend.world->size(), 1);
    EXPECT_EQ(backend.device->memory().limit, std::int64_t{1} << 20);
    EXPECT_EQ(backend.device->name(), "emulated device");
    EXPECT_EQ(&backend.hosts(), host.world.get());
    const Tensor ones(backend, DataType::f32, 1, 4);
    const float values[] = {1, 2, 3, 4};
    backend.device->copy_to_device(ones.matrix.data, values, sizeof values, *backend.stream);
    EXPECT_EQ(backend.compute->sum_squares(ones.matrix, *backend.stream), 30);
  }
  EXPECT_EQ(emulator::take_fault(), "");
}

}  // namespace
}  // namespace hydraulis
