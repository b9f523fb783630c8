#include "runtime/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <limits>
#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "runtime/hugging_face.h"
#include "tests/base/temporary_folder.h"

namespace hydraulis {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kElements = 20000;

double value(std::int64_t step, const std::string& tensor, std::int64_t i) {
  return static_cast<double>(step * 1000 + tensor.back()) + static_cast<double>(i) / kElements;
}

/// Saves a checkpoint of one parameter and its two moments, written by two ranks; a third has none.
void save(const fs::path& root, std::int64_t step) {
  begin_checkpoint(root, step);
  CheckpointManifest manifest;
  manifest.step = step;
  manifest.decoder = load_decoder(HYDRAULIS_TEST_DATA "/hf_configs/rope_llama3.json");
  manifest.type = StoredType::f64;
  manifest.optimizer = {{"learning_rate", 1e-3}};
  manifest.data = {{"position", step}};
  manifest.statistics = {{"loss", std::numeric_limits<double>::quiet_NaN()}, {"third", 1.0 / 3}};
  const std::vector<std::vector<StoredTensor>> tensors = {
      {{"w", StoredType::f64, {kElements}}},
      {{"optimizer.m.w", StoredType::f64, {kElements}},
       {"optimizer.v.w", StoredType::f64, {2, kElements / 2}}},
      {}};
  for (int rank = 0; rank < 3; ++rank) {
    manifest.parts.push_back(write_checkpoint_part<double>(
        root, step, rank, 3, tensors[static_cast<std::size_t>(rank)],
        [step](const StoredTensor& tensor, std::int64_t first, std::span<double> values) {
          for (double& x : values) x = value(step, tensor.name, first++);
        }));
  }
  commit_checkpoint(root, manifest);
}

std::vector<std::int64_t> steps(const fs::path& root) {
  std::vector<std::int64_t> found;
  for (const auto& entry : list_checkpoints(root)) found.push_back(entry.step);
  return found;
}

void flip_a_bit(const fs::path& file, std::int64_t at) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(at);
  const int byte = stream.get();
  stream.seekp(at);
  stream.put(static_cast<char>(byte ^ 4));
}

TEST(CheckpointFolder, GivesBackWhatWasSaved) {
  const TemporaryFolder folder;
  save(folder / "run", 12);
  EXPECT_THAT(steps(folder / "run"), ElementsAre(12));
  const NewestCheckpoint newest = newest_checkpoint(folder / "run");
  EXPECT_THAT(newest.notes, IsEmpty());
  ASSERT_TRUE(newest.checkpoint);
  EXPECT_EQ(newest.checkpoint->path, folder / "run" / "step-00000012");
  const CheckpointManifest manifest = verify_checkpoint(newest.checkpoint->path);
  EXPECT_EQ(manifest.step, 12);
  EXPECT_EQ(manifest.type, StoredType::f64);
  EXPECT_EQ(manifest.decoder.rotary_scaling.kind, RotaryScaling::Kind::llama3);
  EXPECT_EQ(manifest.data.at("position"), 12);
  EXPECT_TRUE(manifest.statistics.at("loss").is_null());
  EXPECT_EQ(manifest.statistics.at("third").get<double>(), 1.0 / 3);
  const CheckpointTensors tensors(newest.checkpoint->path, manifest);
  EXPECT_EQ(tensors.tensors().size(), 3u);
  ASSERT_NE(tensors.find("optimizer.v.w"), nullptr);
  EXPECT_THAT(tensors.find("optimizer.v.w")->shape, ElementsAre(2, kElements / 2));
  EXPECT_EQ(tensors.find("x"), nullptr);
  std::vector<double> part(100);
  tensors.read<double>("optimizer.v.w", 777, part);
  for (std::int64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(part[static_cast<std::size_t>(i)], value(12, "optimizer.v.w", 777 + i));
  }
  EXPECT_THROW(tensors.read<double>("x", 0, part), InputError);
}

TEST(CheckpointFolder, NothingIsThereBeforeTheFirst) {
  const TemporaryFolder folder;
  EXPECT_THAT(steps(folder / "absent"), IsEmpty());
  EXPECT_FALSE(newest_checkpoint(folder / "absent").checkpoint);
  EXPECT_THAT(clean_checkpoints(folder / "absent"), IsEmpty());
}

TEST(CheckpointFolder, ADamagedOneIsReportedAndThePreviousUsed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"flip", "checksum"},     {"shorten", "bytes, expected"}, {"remove", "cannot open"},
      {"manifest", "checksum"}, {"no manifest", "cannot open"}, {"cut manifest", "JSON"},
  };
  for (const auto& [damage, message] : cases) {
    const TemporaryFolder folder;
    save(folder.path(), 1);
    save(folder.path(), 2);
    const fs::path newest = checkpoint_path(folder.path(), 2);
    const fs::path part = newest / "part-00001-of-00003.safetensors";
    const fs::path manifest = newest / "manifest.json";
    if (damage == "flip") flip_a_bit(part, 100000);
    if (damage == "shorten") fs::resize_file(part, 100000);
    if (damage == "remove") fs::remove(part);
    if (damage == "no manifest") fs::remove(manifest);
    if (damage == "cut manifest") fs::resize_file(manifest, fs::file_size(manifest) / 2);
    if (damage == "manifest") {
      std::string text = read_text_file(manifest);
      const auto at = text.find("0.001");
      ASSERT_NE(at, std::string::npos);
      text[at + 4] = '2';
      write_text_file(manifest, text);
    }
    const NewestCheckpoint found = newest_checkpoint(folder.path());
    ASSERT_TRUE(found.checkpoint) << damage;
    EXPECT_EQ(found.checkpoint->step, 1) << damage;
    ASSERT_EQ(found.notes.size(), 1u) << damage;
    EXPECT_THAT(found.notes[0], HasSubstr("step 2 is damaged"));
    EXPECT_THAT(found.notes[0], HasSubstr(message)) << damage;
  }
}

TEST(CheckpointFolder, RetainsTheNewestWholeOnes) {
  const TemporaryFolder folder;
  for (int step = 1; step <= 5; ++step) save(folder.path(), step);
  EXPECT_THAT(retain_checkpoints(folder.path(), 3), ElementsAre(2, 1));
  EXPECT_THAT(steps(folder.path()), ElementsAre(3, 4, 5));
  // The newest two are damaged, one of them so that only its checksum shows it.
  flip_a_bit(checkpoint_path(folder.path(), 5) / "part-00000-of-00003.safetensors", 5000);
  fs::remove(checkpoint_path(folder.path(), 4) / "manifest.json");
  EXPECT_THAT(retain_checkpoints(folder.path(), 1), IsEmpty());
  EXPECT_EQ(newest_checkpoint(folder.path()).checkpoint->step, 3);
  save(folder.path(), 6);
  EXPECT_THAT(retain_checkpoints(folder.path(), 1), ElementsAre(5, 4, 3));
  EXPECT_THAT(steps(folder.path()), ElementsAre(6));
}

TEST(CheckpointFolder, ASaveOfTheSameStepReplacesADamagedOne) {
  const TemporaryFolder folder;
  save(folder.path(), 3);
  fs::remove(checkpoint_path(folder.path(), 3) / "manifest.json");
  save(folder.path(), 3);
  verify_checkpoint(checkpoint_path(folder.path(), 3));
  EXPECT_THAT(clean_checkpoints(folder.path()), IsEmpty());
}

TEST(CheckpointFolder, CleansOnlyWhatSavesLeaveBehind) {
  const TemporaryFolder folder;
  save(folder.path(), 3);
  begin_checkpoint(folder.path(), 4);
  for (const char* other : {"step-4.tmp", "step-00000004.tmpx", "notes.tmp", "step-abcdefgh.tmp"}) {
    fs::create_directory(folder / other);
  }
  // Interrupted between stepping aside and taking over.
  fs::rename(checkpoint_path(folder.path(), 3), folder / "step-00000003.replaced");
  EXPECT_EQ(newest_checkpoint(folder.path()).checkpoint->step, 3);
  EXPECT_THAT(clean_checkpoints(folder.path()), ElementsAre("step-00000004.tmp"));
  EXPECT_EQ(newest_checkpoint(folder.path()).checkpoint->path, folder / "step-00000003");
  EXPECT_TRUE(fs::exists(folder / "step-4.tmp"));
  EXPECT_TRUE(fs::exists(folder / "notes.tmp"));
}

TEST(CheckpointFolder, RefusesPartsThatDoNotFitTogether) {
  const TemporaryFolder folder;
  begin_checkpoint(folder.path(), 1);
  CheckpointManifest manifest;
  manifest.step = 1;
  manifest.decoder = load_decoder(HYDRAULIS_TEST_DATA "/hf_configs/tiny_ok.json");
  const auto part = [&](int rank) {
    return write_checkpoint_part<float>(
        folder.path(), 1, rank, 2, {{"w", StoredType::f32, {1}}},
        [](const StoredTensor&, std::int64_t, std::span<float> x) { x[0] = 1; });
  };
  manifest.parts = {part(0), part(1)};
  EXPECT_THAT(message_of<InputError>([&] { commit_checkpoint(folder.path(), manifest); }),
              HasSubstr("'w' is in two parts"));
  manifest.parts = {part(0)};
  manifest.parts[0].digest.bytes += 1;
  EXPECT_THAT(message_of<InputError>([&] { commit_checkpoint(folder.path(), manifest); }),
              HasSubstr("bytes, expected"));
  EXPECT_FALSE(newest_checkpoint(folder.path()).checkpoint);
  Json json = to_json(part(0));
  json["file"] = "../part";
  EXPECT_THROW(checkpoint_part_from_json(json, "message"), InputError);
}

TEST(CheckpointFolder, SaysWhatCannotBeWritten) {
  const TemporaryFolder folder;
  folder.write("file", "");
  EXPECT_THAT(message_of<InputError>([&] { begin_checkpoint(folder / "file", 1); }),
              HasSubstr("cannot make the folder"));
}

/// Saves for ever, as a trainer does: after the newest, sometimes the same step again, old ones
/// removed; reports each completed step.
[[noreturn]] void train(const fs::path& root, int report) {
  try {
    clean_checkpoints(root);
    const auto newest = newest_checkpoint(root);
    if (!newest.notes.empty()) ::_exit(3);  // an interrupted run leaves nothing damaged
    std::int64_t step = newest.checkpoint ? newest.checkpoint->step : 0;
    for (int saves = 0;; ++saves) {
      if (saves % 3 != 2) ++step;
      save(root, step);
      if (::write(report, &step, sizeof step) != sizeof step) ::_exit(4);
      retain_checkpoints(root, 2);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    ::_exit(5);
  }
}

TEST(CheckpointFolder, KilledAtAnyMomentTheLastCompleteOneIsThere) {
  const TemporaryFolder folder;
  Random random(20);
  std::int64_t last = 0;
  for (int round = 0; round < 25; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(ends[0]);
      train(folder.path(), ends[1]);
    }
    ::close(ends[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(120'000)));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "exit code " << WEXITSTATUS(status);
    std::int64_t step = 0;
    while (::read(ends[0], &step, sizeof step) == sizeof step) last = step;
    ::close(ends[0]);
    const NewestCheckpoint newest = newest_checkpoint(folder.path());
    EXPECT_THAT(newest.notes, IsEmpty());
    if (last == 0) continue;
    ASSERT_TRUE(newest.checkpoint) << "after step " << last;
    EXPECT_GE(newest.checkpoint->step, last);
    EXPECT_LE(newest.checkpoint->step, last + 1);
    last = newest.checkpoint->step;
  }
  EXPECT_GT(last, 0);
}

}  // namespace
}  // namespace hydraulis
